#include "render/excerpt.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace chimera {
namespace {

/// A row: of `size` cells those near a marked one, `separator` between neighbours.
template <class CellText>
std::string row(std::size_t size, const std::set<std::size_t>& marked, std::size_t around, const char* separator,
                const CellText& cell) {
  std::string text;
  std::size_t next = 0;  // the first cell not yet passed
  for (const std::size_t mark : marked) {
    const std::size_t first = std::max(next, mark > around ? mark - around : 0);
    const std::size_t last = std::min(mark + around + 1, size);
    if (first > next) text += " ...";
    for (std::size_t i = first; i < last; ++i) {
      text += (i > 0 && i == next && !text.empty() ? separator : "") + std::string(" ");
      text += marked.contains(i) ? fmt::format("[{}]", cell(i)) : cell(i);
      next = i + 1;
    }
  }
  return text + (next < size ? " ...\n" : "\n");
}

template <class Cell>
std::string rows(const std::vector<std::vector<Cell>>& workers, const std::vector<Place>& places, std::size_t around,
                 const char* separator) {
  std::map<std::size_t, std::set<std::size_t>> marked;  // positions of each worker
  for (const Place& place : places) marked[place.worker].insert(place.position);
  std::string text;
  for (const auto& [worker, positions] : marked) {
    text +=
        fmt::format("  worker {} |", worker) + row(workers[worker].size(), positions, around, separator,
                                                   [&, w = worker](std::size_t i) { return to_text(workers[w][i]); });
  }
  return text;
}

}  // namespace

std::string excerpt(const Schedule& schedule, const std::vector<Place>& places) {
  return rows(schedule.workers, places, 4, "");
}

std::string excerpt(const Program& program, const std::vector<Place>& places) {
  return rows(program.workers, places, 2, ";");
}

}  // namespace chimera
