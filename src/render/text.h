#pragma once
// Schedules as text: the picture of the paper, one row a worker.

#include <cstddef>
#include <string>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

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
