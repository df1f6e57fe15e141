#include "render/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace chimera {
namespace {

using Row = std::vector<std::string>;

constexpr std::int64_t kMostCells = 100'000;  // a row; beyond, rows list ops only

bool is_whole(double value) { return std::abs(value - std::round(value)) < 1e-9; }

bool fits_cells(const Timeline& timeline, double unit) {
  if (!(timeline.makespan / unit <= static_cast<double>(kMostCells))) return false;
  return std::all_of(timeline.workers.begin(), timeline.workers.end(), [&](const WorkerTimeline& worker) {
    return std::all_of(worker.ops.begin(), worker.ops.end(), [&](const TimedOp& op) {
      return is_whole(op.start / unit) && is_whole(op.end / unit) && op.end > op.start;
    });
  });
}

Row cells(const std::vector<Op>& ops, const WorkerTimeline& worker, double makespan, double unit) {
  Row row(static_cast<std::size_t>(std::llround(makespan / unit)), ".");
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto start = static_cast<std::size_t>(std::llround(worker.ops[i].start / unit));
    const auto end = static_cast<std::size_t>(std::llround(worker.ops[i].end / unit));
    row[start] = to_text(ops[i]);
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(start) + 1, row.begin() + static_cast<std::ptrdiff_t>(end),
              "\"");
  }
  return row;
}

Row labels(const std::vector<Op>& ops) {
  Row row;
  for (const Op& op : ops) row.push_back(to_text(op));
  return row;
}

/// The way a replica's stages run through the workers.
std::string direction(const std::vector<WorkerId>& workers, std::size_t replica, std::size_t num_workers) {
  const auto steps = [&](std::int64_t step) {
    for (std::size_t s = 1; s < workers.size(); ++s) {
      const auto count = static_cast<std::int64_t>(num_workers);
      if ((workers[s - 1].value() + step + count) % count != workers[s].value()) return false;
    }
    return workers.size() == num_workers && num_workers > 1;
  };
  // Through two workers both ways look the same modulo their number.
  if (steps(1) && (num_workers > 2 || workers[0].value() == 0)) return "down";
  if (steps(-1)) return "up";
  return fmt::format("replica {}", replica);
}

std::string listed(const std::vector<MicroBatchId>& ids) {
  constexpr std::size_t kMost = 6;
  if (ids.empty()) return "no micro-batch";
  std::string text = "micro-batches ";
  for (std::size_t i = 0; i < std::min(ids.size(), kMost); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ids[i].value());
  if (ids.size() > kMost) text += fmt::format(", ... ({} in all)", ids.size());
  return text;
}

std::vector<std::string> legend(const Schedule& schedule, bool shows_bubbles) {
  std::vector<std::string> lines;
  std::size_t width = 1;
  if (schedule.placement.num_replicas() > 1) {
    const auto ids = micro_batches_of_replicas(schedule);
    std::vector<std::string> names;
    for (std::size_t r = 0; r < ids.size(); ++r) {
      names.push_back(direction(schedule.placement.worker_of[r], r, schedule.workers.size()) + ":");
      width = std::max(width, names.back().size());
    }
    for (std::size_t r = 0; r < ids.size(); ++r)
      lines.push_back(fmt::format("{:<{}} {}", names[r], width, listed(ids[r])));
  }
  if (shows_bubbles) lines.push_back(fmt::format("{:<{}} a bubble, found by simulate()", ".", width));
  return lines;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string to_text(const Schedule& schedule, const Timeline& timeline, double unit) {
  const bool timed = fits_cells(timeline, unit);
  std::vector<Row> rows;
  std::size_t width = 1;
  std::size_t columns = 0;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const auto& ops = schedule.workers[w];
    rows.push_back(timed ? cells(ops, timeline.workers[w], timeline.makespan, unit) : labels(ops));
    for (const std::string& cell : rows.back()) width = std::max(width, cell.size());
    columns = std::max(columns, rows.back().size());
  }
  const auto notes = legend(schedule, timed);
  const std::size_t digits = std::to_string(std::max<std::size_t>(rows.size(), 1) - 1).size();
  std::string text;
  for (std::size_t w = 0; w < rows.size(); ++w) {
    std::string line = fmt::format("worker {:>{}} |", w, digits);
    rows[w].resize(columns);
    for (const std::string& cell : rows[w]) line += fmt::format(" {:^{}}", cell, width);
    if (w < notes.size()) line += std::string(8, ' ') + notes[w];
    text += without_trailing_blanks(line) + "\n";
  }
  for (std::size_t i = rows.size(); i < notes.size(); ++i) text += notes[i] + "\n";
  return text;
}

}  // namespace chimera
