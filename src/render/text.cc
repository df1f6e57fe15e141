#include "render/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "render/colors.h"
#include "render/replicas.h"

namespace chimera {
namespace {

constexpr std::size_t kMostScaledColumns = 4000;  // of a row to scale; beyond, rows list ops only

struct Cell {
  std::string text = ".";
  const Op* op = nullptr;  // none: a bubble, or nothing
  bool begins = true;      // whether the op's box begins here
};

/// Rows of cells of one width, and what they mean.
struct Grid {
  std::vector<std::vector<Cell>> rows;  // [worker]
  std::size_t width = 1;                // of a cell
  bool separated = true;                // whether a blank stands before each cell
  std::size_t columns = 0;              // shown
  std::size_t left_out = 0;             // columns that were cut
  std::vector<std::string> notes;       // what the marks mean
};

bool is_whole(double value) { return std::abs(value - std::round(value)) < 1e-9; }

std::size_t rounded(double value) { return static_cast<std::size_t>(std::llround(value)); }

/// The columns that a picture gets which needs `wanted` of them.
std::size_t allowed_columns(std::size_t wanted, std::size_t workers) {
  return std::min(wanted, std::max<std::size_t>(kMostTextCells / std::max<std::size_t>(workers, 1), 1));
}

bool fits_cells(const Timeline& timeline, double unit) {
  if (!(timeline.makespan / unit <= 1e9)) return false;
  return std::all_of(timeline.workers.begin(), timeline.workers.end(), [&](const WorkerTimeline& worker) {
    return std::all_of(worker.ops.begin(), worker.ops.end(), [&](const TimedOp& op) {
      return is_whole(op.start / unit) && is_whole(op.end / unit) && rounded(op.end / unit) > rounded(op.start / unit);
    });
  });
}

/// Draws one cell for each unit of time.
Grid in_cells(const Schedule& schedule, const Timeline& timeline, double unit) {
  Grid grid;
  const std::size_t all = rounded(timeline.makespan / unit);
  grid.columns = allowed_columns(all, schedule.workers.size());
  grid.left_out = all - grid.columns;
  grid.notes = {". a bubble, found by simulate()"};
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    auto& row = grid.rows.emplace_back(grid.columns);
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::size_t start = rounded(timeline.workers[w].ops[i].start / unit);
      const std::size_t end = rounded(timeline.workers[w].ops[i].end / unit);
      for (std::size_t c = start; c < std::min(end, grid.columns); ++c) {
        row[c] = {c == start ? to_text(ops[i]) : "\"", &ops[i], c == start};
        grid.width = std::max(grid.width, row[c].text.size());
      }
    }
  }
  return grid;
}

/// The longest label, and the shortest op, of all workers.
struct Extremes {
  std::size_t letters = 1;
  double shortest = 0;
};

Extremes extremes(const Schedule& schedule, const Timeline& timeline) {
  Extremes found{1, timeline.makespan};
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const TimedOp& time = timeline.workers[w].ops[i];
      found.letters = std::max(found.letters, to_text(schedule.workers[w][i]).size());
      found.shortest = std::min(found.shortest, time.end - time.start);
    }
  }
  return found;
}

/// One cell a letter, so many for a unit of time that the shortest op holds the longest label and a blank; none where
/// that is too wide.
std::optional<Grid> to_scale(const Schedule& schedule, const Timeline& timeline) {
  const auto [letters, shortest] = extremes(schedule, timeline);
  const double scale = static_cast<double>(letters + 1) / shortest;
  if (!(timeline.makespan * scale <= static_cast<double>(kMostScaledColumns))) return std::nullopt;
  Grid grid;
  grid.separated = false;
  const std::size_t all = rounded(timeline.makespan * scale);
  grid.columns = allowed_columns(all, schedule.workers.size());
  grid.left_out = all - grid.columns;
  grid.notes = {". a bubble, - the op goes on; to scale"};
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    auto& row = grid.rows.emplace_back(grid.columns);
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const Op& op = schedule.workers[w][i];
      const std::string label = to_text(op);
      const std::size_t start = rounded(timeline.workers[w].ops[i].start * scale);
      const std::size_t end = rounded(timeline.workers[w].ops[i].end * scale);
      for (std::size_t c = start; c < std::min(end, grid.columns); ++c) {
        if (c + 1 == end) {
          row[c] = {" ", nullptr, true};
        } else {
          row[c] = {c - start < label.size() ? label.substr(c - start, 1) : "-", &op, c == start};
        }
      }
    }
  }
  return grid;
}

/// Writes each worker's ops in order.
Grid in_order(const Schedule& schedule) {
  Grid grid;
  std::size_t most = 0;
  for (const auto& ops : schedule.workers) most = std::max(most, ops.size());
  grid.columns = allowed_columns(most, schedule.workers.size());
  grid.left_out = most - grid.columns;
  for (const auto& ops : schedule.workers) {
    auto& row = grid.rows.emplace_back(grid.columns, Cell{"", nullptr, true});
    for (std::size_t i = 0; i < std::min(ops.size(), grid.columns); ++i) {
      row[i] = {to_text(ops[i]), &ops[i], true};
      grid.width = std::max(grid.width, row[i].text.size());
    }
  }
  return grid;
}

Grid grid_of(const Schedule& schedule, const Timeline& timeline, double unit) {
  if (fits_cells(timeline, unit)) return in_cells(schedule, timeline, unit);
  return to_scale(schedule, timeline).value_or(in_order(schedule));
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

/// Black on the op's colour; ops of replicas that other pictures hatch are underlined.
std::string escape_sequence(const Op& op, std::size_t num_replicas) {
  return fmt::format("\x1b[{}38;5;16;48;5;{}m", is_hatched(op.replica, num_replicas) ? "4;" : "",
                     terminal_color(color_of(op.kind, op.replica, num_replicas)));
}

class TextPicture {
 public:
  TextPicture(const Schedule& schedule, Grid grid, const TextStyle& style)
      : schedule_(schedule), grid_(std::move(grid)), style_(style) {
    digits_ = std::to_string(std::max<std::size_t>(grid_.rows.size(), 1) - 1).size();
  }

  std::string draw() {
    const std::size_t step = grid_.width + (grid_.separated ? 1 : 0);
    const std::size_t room = style_.columns > kNames + digits_ ? style_.columns - kNames - digits_ : 0;
    const bool folds = style_.columns > 0 && grid_.columns * step > room;
    const std::size_t block = std::max<std::size_t>(folds ? room / step : grid_.columns, 1);
    const auto notes = legend();
    std::string text;
    for (std::size_t first = 0; first == 0 || first < grid_.columns; first += block) {
      if (first > 0) text += "\n";
      for (std::size_t w = 0; w < grid_.rows.size(); ++w) {
        text += row(w, first, std::min(first + block, grid_.columns), !folds && w < notes.size() ? notes[w] : "");
      }
    }
    for (std::size_t i = folds ? 0 : grid_.rows.size(); i < notes.size(); ++i) text += notes[i] + "\n";
    if (grid_.left_out > 0) {
      text += fmt::format("... cut: {} of {} columns are not shown; another --format has them all\n", grid_.left_out,
                          grid_.left_out + grid_.columns);
    }
    return text;
  }

 private:
  static constexpr std::size_t kNames = 9;  // "worker ", " |"

  /// Which micro-batches each replica takes, and what marks mean, aligned.
  [[nodiscard]] std::vector<std::string> legend() const {
    std::vector<std::string> lines;
    std::size_t width = 1;
    if (schedule_.placement.num_replicas() > 1) {
      const auto ids = micro_batches_of_replicas(schedule_);
      std::vector<std::string> names;
      for (std::size_t r = 0; r < ids.size(); ++r) {
        names.push_back(replica_name(schedule_, r) + ":");
        width = std::max(width, names.back().size());
      }
      for (std::size_t r = 0; r < ids.size(); ++r)
        lines.push_back(fmt::format("{:<{}} {}", names[r], width, listed(ids[r])));
    }
    for (const std::string& note : grid_.notes) {
      lines.push_back(fmt::format("{:<{}} {}", note.substr(0, 1), width, note.substr(2)));
    }
    return lines;
  }

  [[nodiscard]] std::string row(std::size_t worker, std::size_t first, std::size_t last,
                                const std::string& note) const {
    std::string line = fmt::format("worker {:>{}} |{}", worker, digits_, grid_.separated ? "" : " ");
    const Op* colored = nullptr;  // the op whose colour is on
    for (std::size_t c = first; c < last; ++c) {
      const Cell& cell = grid_.rows[worker][c];
      if (style_.colored && colored != nullptr && (cell.op != colored || cell.begins)) {
        line += "\x1b[0m";
        colored = nullptr;
      }
      if (grid_.separated) line += ' ';
      if (style_.colored && cell.op != nullptr && colored == nullptr) {
        line += escape_sequence(*cell.op, schedule_.placement.num_replicas());
        colored = cell.op;
      }
      line += fmt::format("{:^{}}", cell.text, grid_.width);
    }
    if (colored != nullptr) line += "\x1b[0m";
    if (!note.empty()) line += std::string(8, ' ') + note;
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }

  const Schedule& schedule_;
  Grid grid_;
  TextStyle style_;
  std::size_t digits_ = 1;
};

}  // namespace

std::string to_text(const Schedule& schedule, const Timeline& timeline, const TextStyle& style) {
  return TextPicture(schedule, grid_of(schedule, timeline, style.unit), style).draw();
}

}  // namespace chimera
