#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

// Schedules as text: the picture of the paper, one row a worker.

namespace chimera {

/// The grid around a counter-example: one row for each worker that has a place in it, ascending, with each place in
/// brackets and four ops around it: `  worker 1 | ... 1B0 [1F1] 1B1 ... 1F5 [1B3]`. Every row ends with a line end.
[[nodiscard]] std::string excerpt(const Schedule& schedule, const std::vector<Place>& places);

/// The same of a program, two instructions around each place: `  worker 1 | ... 1F0; [wait for 0F1 from worker 0] ...`.
[[nodiscard]] std::string excerpt(const Program& program, const std::vector<Place>& places);

struct TextStyle {
  double unit = 1;          // time of one cell
  bool colored = false;     // ops in the colours of render/colors.h, by escape sequences for 256 colours
  std::size_t columns = 0;  // of the terminal: wider pictures are folded into blocks of slots; 0: never
};

/// Most cells of a picture; the rows of a larger one are cut, and a line below says so.
inline constexpr std::size_t kMostTextCells = 250'000;

/// One row a worker, one cell a unit of time: stage, letter, micro-batch (`2F5`); `"` where the op goes on, `.` a
/// bubble. Beside the first rows, which micro-batches each replica takes, where there is more than one replica.
/// Where some time is not a whole number of units, rows are drawn to scale, as long as their shortest op needs: `-`
/// where an op goes on, a dot for every letter's width of a bubble. Where that is too wide, or some op takes no time,
/// each row is the worker's ops in order, without bubbles.
/// Source of the notation: torch.distributed.pipelining; of the picture: Li and Hoefler, SC'21, figure 3.
[[nodiscard]] std::string to_text(const Schedule& schedule, const Timeline& timeline, const TextStyle& style = {});

}  // namespace chimera
