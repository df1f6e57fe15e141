#include "check/shortest_cycle.h"

#include <algorithm>
#include <limits>

namespace chimera {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMostEffort = 20'000'000;

class Search {
 public:
  explicit Search(const Graph& successors)
      : successors_(successors), alive_(successors.size(), true), from_(successors.size(), kNone) {
    strike_off_ends();
  }

  std::vector<std::uint32_t> run() {
    for (std::uint32_t node = 0; node < successors_.size(); ++node) {
      if (best_.size() == 1 || (effort_ >= kMostEffort && !best_.empty())) break;
      if (alive_[node]) search_from(node);
    }
    return best_;
  }

 private:
  /// Removes nodes that lead nowhere, again and again: every node left leads to a cycle.
  void strike_off_ends() {
    std::vector<std::vector<std::uint32_t>> predecessors(successors_.size());
    std::vector<std::size_t> open(successors_.size());
    std::vector<std::uint32_t> ends;
    for (std::uint32_t node = 0; node < successors_.size(); ++node) {
      open[node] = successors_[node].size();
      if (open[node] == 0) ends.push_back(node);
      for (const std::uint32_t next : successors_[node]) predecessors[next].push_back(node);
    }
    while (!ends.empty()) {
      const std::uint32_t end = ends.back();
      ends.pop_back();
      alive_[end] = false;
      for (const std::uint32_t node : predecessors[end]) {
        if (--open[node] == 0) ends.push_back(node);
      }
    }
  }

  void search_from(std::uint32_t start) {
    reached_ = {start};
    std::uint32_t last = kNone;
    std::size_t depth = 1;
    std::size_t level_end = 1;
    for (std::size_t i = 0; i < reached_.size() && last == kNone; ++i) {
      if (i == level_end) {
        level_end = reached_.size();
        if (++depth >= best_.size() && !best_.empty()) break;
      }
      if (expand(reached_[i], start)) last = reached_[i];
    }
    if (last != kNone) {
      best_.clear();
      for (std::uint32_t node = last; node != start; node = from_[node]) best_.push_back(node);
      best_.push_back(start);
      std::reverse(best_.begin(), best_.end());
    }
    for (const std::uint32_t node : reached_) from_[node] = kNone;
  }

  /// Whether an edge leads back to the start.
  bool expand(std::uint32_t node, std::uint32_t start) {
    for (const std::uint32_t next : successors_[node]) {
      ++effort_;
      if (next == start) return true;
      if (!alive_[next] || from_[next] != kNone) continue;
      from_[next] = node;
      reached_.push_back(next);
    }
    return false;
  }

  const Graph& successors_;
  std::vector<bool> alive_;
  std::vector<std::uint32_t> from_;  // [node]: where the search came from
  std::vector<std::uint32_t> reached_;
  std::vector<std::uint32_t> best_;
  std::size_t effort_ = 0;
};

}  // namespace

std::vector<std::uint32_t> shortest_cycle(const Graph& successors) { return Search(successors).run(); }

}  // namespace chimera
