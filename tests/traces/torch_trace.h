#pragma once
// Writes traces as torch.profiler does for torch.distributed.pipelining, of a simulated timeline. The form is that of
// torch 2.11; the device events follow the documentation of Kineto, and have not been compared with a real GPU's.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "simulate/costs.h"
#include "traces/rank_trace.h"

namespace chimera::testing {

struct TorchTraceForm {
  int steps = 3;
  double between = 0.005;           // Seconds between steps, in an optimizer step; negative: steps overlap
  std::vector<double> clocks = {};  // [worker]: seconds by which its clock is late
  bool marks_waits = true;          // Whether the ends of waits are recorded
  bool on_device = false;           // Kernels, launched at once; ops of the host take no time
  bool annotates_device = false;    // gpu_user_annotation instead of kernels
  std::int64_t first_rank = 0;      // Of the pipeline
  std::int64_t rank_stride = 1;     // Between the ranks of the pipeline
  std::int64_t world_size = 0;      // 0: the workers of the schedule
  std::size_t cut = 0;              // Ops missing at the start
  double slowdown = 1;              // Of all ops
};

/// Returns the text of each worker's file.
[[nodiscard]] std::vector<std::string> torch_traces(const Schedule& schedule, const CostModel& costs,
                                                    const TorchTraceForm& form = {});

/// Reads texts, each named `rankN.json`.
[[nodiscard]] std::vector<RankTrace> read_texts(const std::vector<std::string>& texts);

/// Returns costs in seconds that differ from stage to stage.
[[nodiscard]] CostModel uneven_costs(std::int64_t stages);

}  // namespace chimera::testing
