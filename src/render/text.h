#pragma once
// Draws timelines of schedules, and excerpts that show where a schedule or program is invalid, as text for terminals
// and tests (tests/golden has such pictures). An op is written as stage, kind and micro-batch: `2F5` is the forward of
// stage 2 on micro-batch 5, `2B5` its backward.

#include <cstddef>

#include "check/violation.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Draws the ops at `places`, each in brackets and with four ops on either side, one row per worker: ` worker 1 | ...
/// 1B0 [1F1] 1B1 ... 1F5 [1B3]`. A place is a worker and an index in its list; a Violation (check/violation.h) has such
/// places.
[[nodiscard]] std::string excerpt(const Schedule& schedule, const std::vector<Place>& places);

/// Draws the instructions at `places`, each in brackets and with two instructions on either side: ` worker 1 | ... 1F0;
/// [wait for 0F1 from worker 0] ...`.
[[nodiscard]] std::string excerpt(const Program& program, const std::vector<Place>& places);

/// How to_text() draws.
struct TextStyle {
  double unit = 1;       // Units of time per column of the grid (cell); with slices, a cell is shorter by their number
  bool colored = false;  // Colors of render/colors.h, by escape sequences for 256 colors
  std::size_t columns = 0;  // Width of the terminal, at which pictures are folded into blocks; 0: unlimited
};

/// Maximum number of cells in a picture; longer rows are cut, and a note says so.
inline constexpr std::size_t kMaxTextCells = 250'000;

/// Draws one row per worker and one cell per unit of time: the op that begins, `"` for a continued op, `.` for a
/// bubble, and `&` between the ops of a pair. Lists each replica's micro-batches next to the rows, if there are several
/// replicas. If several rules can order the ops, the last line names the rule of this schedule (Schedule::order):
/// `order: slots`.
///
/// If some time is not a whole number of units, rows are drawn to scale, wide enough for the label of the shortest op,
/// with `-` for a continued op. If that is too wide, or an op takes no time, a row is the list of the worker's ops in
/// order, without bubbles.
///
/// Source of the notation: torch.distributed.pipelining; of the picture: Li and Hoefler, SC'21, figure 3.
[[nodiscard]] std::string to_text(const Schedule& schedule, const Timeline& timeline, const TextStyle& style = {});

}  // namespace chimera
