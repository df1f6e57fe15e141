// A picture is a `Grid` of cells first. grid_of() chooses its form: one cell per unit of time, one letter per part of a
// unit, or the ops in order. TextPicture writes the grid line by line, with colors, folded to the width of the
// terminal. The functions excerpt(), which show the places of an error, need no times and do not use the grid.

#include "render/text.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/mapped.h"
#include "render/colors.h"
#include "render/panel.h"

namespace chimera {
namespace {

/// Shows only cells near marked ones.
template <class CellText>
std::string row(std::size_t size, const std::set<std::size_t>& marked, std::size_t around, const char* separator,
                const CellText& cell) {
  std::string text;
  std::size_t next = 0;  // First cell not yet passed
  for (const std::size_t mark : marked) {
    // Cells that two marks have around them are shown once.
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
std::string rows(const std::vector<std::vector<Cell>>& workers, std::int64_t slices, const std::vector<Place>& places,
                 std::size_t around, const char* separator) {
  std::map<std::size_t, std::set<std::size_t>> marked;  // Positions of each worker
  for (const Place& place : places) marked[place.worker].insert(place.position);
  std::string text;
  for (const auto& [worker, positions] : marked)
    text += fmt::format("  worker {} |", worker) +
            row(workers[worker].size(), positions, around, separator,
                [&, w = worker](std::size_t i) { return to_text(workers[w][i], slices); });
  return text;
}

constexpr std::size_t kMaxScaledColumns = 4000;  // Beyond it, rows only list ops

struct Cell {
  std::string text = ".";
  const Op* op = nullptr;  // null: a bubble or nothing
  bool begins = true;      // Whether the op's box begins here
  bool joins = false;      // Whether the op pairs with the previous one
};

struct Grid {
  std::vector<std::vector<Cell>> rows;  // [worker]
  std::size_t width = 1;                // Columns of a cell
  bool separated = true;                // Whether a blank precedes each cell
  std::size_t columns = 0;              // Shown
  std::size_t left_out = 0;             // Columns that were cut
  std::vector<std::string> notes;       // Legend
};

constexpr const char* kPairNote = "& two ops of a pair";

bool is_whole(double value) { return std::abs(value - std::round(value)) < 1e-9; }

std::size_t round_to_index(double value) { return static_cast<std::size_t>(std::llround(value)); }

std::size_t limit_columns(std::size_t wanted, std::size_t workers) {
  // At least one column, however many workers there are.
  return std::min(wanted, std::max<std::size_t>(kMaxTextCells / std::max<std::size_t>(workers, 1), 1));
}

/// Returns a grid for the schedule, without rows.
Grid grid_with(const Schedule& schedule, std::size_t columns, std::vector<std::string> notes = {}) {
  Grid grid{.columns = limit_columns(columns, schedule.workers.size()), .notes = std::move(notes)};
  grid.left_out = columns - grid.columns;
  if (has_pairs(schedule)) grid.notes.emplace_back(kPairNote);
  return grid;
}

bool fits_cells(const Timeline& timeline, double unit) {
  if (!(timeline.makespan / unit <= 1e9)) return false;
  return std::all_of(timeline.workers.begin(), timeline.workers.end(), [&](const WorkerTimeline& worker) {
    return std::all_of(worker.ops.begin(), worker.ops.end(), [&](const TimedOp& op) {
      return is_whole(op.start / unit) && is_whole(op.end / unit) &&
             round_to_index(op.end / unit) > round_to_index(op.start / unit);
    });
  });
}

void draw_box(std::vector<Cell>& row, std::size_t start, std::size_t end, std::string label, const Op& op, bool joins) {
  for (std::size_t c = start; c < std::min(end, row.size()); ++c)
    row[c] = {c == start ? std::move(label) : "\"", &op, c == start, c == start && joins};
}

Grid draw_in_cells(const Schedule& schedule, const Timeline& timeline, double unit) {
  Grid grid = grid_with(schedule, round_to_index(timeline.makespan / unit), {". a bubble, found by simulate()"});
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    auto& row = grid.rows.emplace_back(grid.columns);
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      std::size_t start = round_to_index(timeline.workers[w].ops[i].start / unit);
      const std::size_t end = round_to_index(timeline.workers[w].ops[i].end / unit);
      bool joins = i > 0 && ops[i - 1].paired;
      std::string label = to_text(ops[i], schedule.slices);
      if (joins && runs_with_next(ops, timeline.workers[w], i - 1)) {
        // Both ops have the same cells: the second op starts in the next, if any.
        if (start + 1 < end) {
          ++start;
        } else {
          label = to_text(ops[i - 1], schedule.slices) + "&" + label;
          joins = false;
        }
      }
      if (start < grid.columns) grid.width = std::max(grid.width, label.size());
      draw_box(row, start, end, std::move(label), ops[i], joins);
    }
  }
  return grid;
}

/// The longest label and the shortest box of some ops.
struct Extremes {
  std::size_t letters = 0;
  double shortest = 0;

  /// Letters per unit of time: the shortest op fits the longest label and a blank.
  [[nodiscard]] double scale() const { return static_cast<double>(letters + 1) / shortest; }
};

/// Example: `0F1`. A pair that runs together gives `0F1&0B0` for the first op and nothing for the second.
std::string label_of(const Schedule& schedule, const Timeline& timeline, std::size_t worker, std::size_t i) {
  const auto& ops = schedule.workers[worker];
  if (i > 0 && runs_with_next(ops, timeline.workers[worker], i - 1)) return "";
  const std::string label = to_text(ops[i], schedule.slices);
  return runs_with_next(ops, timeline.workers[worker], i) ? label + "&" + to_text(ops[i + 1], schedule.slices) : label;
}

// A pair that runs together is one box with two labels, so it may be short and still need many letters.
double letters_per_unit(const Schedule& schedule, const Timeline& timeline) {
  Extremes ops{1, timeline.makespan};
  Extremes pairs{0, timeline.makespan};
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const TimedOp& time = timeline.workers[w].ops[i];
      Extremes& found = runs_with_next(schedule.workers[w], timeline.workers[w], i) ? pairs : ops;
      found.letters = std::max(found.letters, label_of(schedule, timeline, w, i).size());
      found.shortest = std::min(found.shortest, time.end - time.start);
    }
  }
  return pairs.letters == 0 ? ops.scale() : std::max(ops.scale(), pairs.scale());
}

/// Draws one cell per letter; nullopt if too wide.
std::optional<Grid> draw_to_scale(const Schedule& schedule, const Timeline& timeline) {
  const double scale = letters_per_unit(schedule, timeline);
  if (!(timeline.makespan * scale <= static_cast<double>(kMaxScaledColumns))) return std::nullopt;
  Grid grid =
      grid_with(schedule, round_to_index(timeline.makespan * scale), {". a bubble, - the op goes on; to scale"});
  grid.separated = false;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    auto& row = grid.rows.emplace_back(grid.columns);
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::string label = label_of(schedule, timeline, w, i);
      if (label.empty()) continue;
      const std::size_t start = round_to_index(timeline.workers[w].ops[i].start * scale);
      const std::size_t end = round_to_index(timeline.workers[w].ops[i].end * scale);
      const bool joined = ops[i].paired && !runs_with_next(ops, timeline.workers[w], i);
      for (std::size_t c = start; c < std::min(end, grid.columns); ++c) {
        // The last letter of a box stays free, so that boxes do not touch: a label and a blank fit into the shortest
        // op. Between the ops of a pair that run one after the other, it is `&`.
        if (c + 1 == end)
          row[c] = {joined ? "&" : " ", nullptr, true};
        else
          row[c] = {c - start < label.size() ? label.substr(c - start, 1) : "-", &ops[i], c == start};
      }
    }
  }
  return grid;
}

Grid draw_in_order(const Schedule& schedule) {
  std::size_t most = 0;
  for (const auto& ops : schedule.workers) most = std::max(most, ops.size());
  Grid grid = grid_with(schedule, most);
  for (const auto& ops : schedule.workers) {
    // Behind the last op there is nothing: a dot would be a bubble, and this form has no times.
    auto& row = grid.rows.emplace_back(grid.columns, Cell{"", nullptr, true});
    for (std::size_t i = 0; i < std::min(ops.size(), grid.columns); ++i) {
      row[i] = {to_text(ops[i], schedule.slices), &ops[i], true, i > 0 && ops[i - 1].paired};
      grid.width = std::max(grid.width, row[i].text.size());
    }
  }
  return grid;
}

// The most legible form that fits: one cell per unit of time, then one letter per part of a unit, then the ops in order
// without times.
Grid grid_of(const Schedule& schedule, const Timeline& timeline, double unit) {
  const double cell = unit / static_cast<double>(schedule.slices);
  if (fits_cells(timeline, cell)) return draw_in_cells(schedule, timeline, cell);
  return draw_to_scale(schedule, timeline).value_or(draw_in_order(schedule));
}

std::string list_micro_batches(const std::vector<MicroBatchId>& ids) {
  constexpr std::size_t kMax = 6;
  if (ids.empty()) return "no micro-batch";
  const auto numbers = numbers_of_ids(std::span(ids).first(std::min(ids.size(), kMax)));
  return fmt::format("micro-batch{} {}{}", ids.size() == 1 ? "" : "es", fmt::join(numbers, ", "),
                     ids.size() > kMax ? fmt::format(", ... ({} in all)", ids.size()) : "");
}

/// Black on the op's color; underlined for replicas hatched elsewhere.
std::string escape_sequence(const Op& op, const Schedule& schedule) {
  const std::size_t replicas = schedule.placement.num_replicas();
  const Color color =
      color_of(op.kind, op.replica, replicas, shade_of(op.slice, schedule.slices), num_shades(schedule.slices));
  // SGR codes: 4 underlines, 38;5 sets the color of letters (16 is black), 48;5 that of the ground.
  return fmt::format("\x1b[{}38;5;16;48;5;{}m", is_hatched(op.replica, replicas) ? "4;" : "", terminal_color(color));
}

// A picture wider than the terminal is folded into blocks of columns, each with all workers, as a table would be.
class TextPicture {
 public:
  TextPicture(const Schedule& schedule, Grid grid, const TextStyle& style)
      : schedule_(schedule), grid_(std::move(grid)), style_(style) {}

  std::string draw() {
    const std::size_t step = grid_.width + (grid_.separated ? 1 : 0);
    const std::size_t room = style_.columns > kNames + digits_ ? style_.columns - kNames - digits_ : 0;
    const bool folds = style_.columns > 0 && grid_.columns * step > room;
    const std::size_t block = std::max<std::size_t>(folds ? room / step : grid_.columns, 1);
    const auto notes = legend();
    std::size_t longest = 0;
    for (const std::string& note : notes) longest = std::max(longest, note.size());
    const bool lists = folds || (style_.columns > 0 && grid_.columns * step + kGap + longest > room);
    std::string text;
    // A schedule without ops still shows its workers.
    for (std::size_t first = 0; first == 0 || first < grid_.columns; first += block) {
      if (first > 0) text += "\n";
      for (std::size_t w = 0; w < grid_.rows.size(); ++w)
        text += row(w, first, std::min(first + block, grid_.columns), !lists && w < notes.size() ? notes[w] : "");
    }
    // Notes stand beside the rows if there is room, one per row, and the others below.
    for (std::size_t i = lists ? 0 : grid_.rows.size(); i < notes.size(); ++i) text += notes[i] + "\n";
    if (grid_.left_out > 0)
      text += fmt::format("... cut: {} of {} columns are not shown; another --format has them all\n", grid_.left_out,
                          grid_.left_out + grid_.columns);
    return text;
  }

 private:
  static constexpr std::size_t kNames = 9;  // "worker ", " |"
  static constexpr std::size_t kGap = 8;    // Between a row and a note

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
        lines.push_back(fmt::format("{:<{}} {}", names[r], width, list_micro_batches(ids[r])));
    }
    for (const std::string& note : grid_.notes) {
      // A note begins with the character that it explains.
      lines.push_back(fmt::format("{:<{}} {}", note.substr(0, 1), width, note.substr(2)));
    }
    return lines;
  }

  [[nodiscard]] std::string row(std::size_t worker, std::size_t first, std::size_t last,
                                const std::string& note) const {
    std::string line = fmt::format("worker {:>{}} |{}", worker, digits_, grid_.separated ? "" : " ");
    if (!holds_[worker]) {
      const std::size_t width = (last - first) * (grid_.width + (grid_.separated ? 1 : 0));
      return finished(line + fmt::format("{:<{}}", grid_.separated ? " lost" : "lost", width), note);
    }
    // Escape sequences surround runs of equal color instead of each cell, which keeps wide pictures small.
    const Op* colored = nullptr;  // The op whose color is active
    for (std::size_t c = first; c < last; ++c) {
      const Cell& cell = grid_.rows[worker][c];
      if (style_.colored && colored != nullptr && (cell.op != colored || cell.begins)) {
        line += "\x1b[0m";
        colored = nullptr;
      }
      if (grid_.separated) line += cell.joins ? '&' : ' ';
      if (style_.colored && cell.op != nullptr && colored == nullptr) {
        line += escape_sequence(*cell.op, schedule_);
        colored = cell.op;
      }
      line += fmt::format("{:^{}}", cell.text, grid_.width);
    }
    if (colored != nullptr) line += "\x1b[0m";
    return finished(std::move(line), note);
  }

  static std::string finished(std::string line, const std::string& note) {
    if (!note.empty()) line += std::string(kGap, ' ') + note;
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }

  const Schedule& schedule_;
  Grid grid_;
  TextStyle style_;
  std::vector<bool> holds_ =
      holds_a_stage(schedule_.placement, schedule_.workers.size());  // [worker]: false if it is lost
  std::size_t digits_ = std::to_string(std::max<std::size_t>(grid_.rows.size(), 1) - 1).size();
};

}  // namespace

std::string excerpt(const Schedule& schedule, const std::vector<Place>& places) {
  return rows(schedule.workers, schedule.slices, places, 4, "");
}

std::string excerpt(const Program& program, const std::vector<Place>& places) {
  return rows(program.workers, program.slices, places, 2, ";");
}

std::string to_text(const Schedule& schedule, const Timeline& timeline, const TextStyle& style) {
  const std::string picture = TextPicture(schedule, grid_of(schedule, timeline, style.unit), style).draw();
  return schedule.order ? picture + fmt::format("order: {}\n", to_text(*schedule.order)) : picture;
}

}  // namespace chimera
