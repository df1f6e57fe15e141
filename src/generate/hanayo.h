#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Slots of micro-batch 0 on worker r.
struct PatternSlots {
  std::int64_t forward_down = 0;   // F of stage r
  std::int64_t forward_up = 0;     // F of stage 2D-1-r
  std::int64_t gradient_up = 0;    // I of stage 2D-1-r
  std::int64_t gradient_down = 0;  // I of stage r
};

/// Returns the schedule of a slot pattern on stages r and 2D-1-r of worker r (V-Half, V-Min). Micro-batch m has the
/// slots of micro-batch 0 plus 6m, because a worker runs six ops per micro-batch. Each free slot takes the W of the
/// oldest pending I; the rest come last. Requires four slots that differ modulo 6. Throws ConfigError if
/// wave_pattern_refusal() has a reason. Source: Qi et al., NeurIPS'24 (building blocks).
[[nodiscard]] Schedule wave_pattern(
    const char* name, const PipelineShape& shape,
    const std::function<PatternSlots(std::int64_t depth, std::int64_t worker)>& slots_of);

/// Accepts any D and N.
[[nodiscard]] std::optional<std::string> wave_pattern_refusal(const PipelineShape& shape);

/// Hanayo's waves with split backward, in the order of deepest_first.h for equal times, no latency and at most D
/// micro-batches in flight.
///
/// Any D, N and w, else ConfigError. A worker holds at most D activations of its whole share. For F = I = W and D | N
/// the makespan is N(F+I+W) + (D-1)F/2w, the minimum for one replica in loop or wave placement. Source: ours; Liu et
/// al., SC'23 (placement), and Qi et al., ICLR'24 (split backward).
[[nodiscard]] Schedule hanayo_zb(const PipelineShape& shape);

[[nodiscard]] Generator hanayo_zb_entry();

/// Hanayo: 2wD stages that go down the workers and up again, w times. The order is greedy at F = 1, B = 2 per stage and
/// no latency: backward before forward, then the older micro-batch, then the deeper stage. For N > D it is the earliest
/// to end of three greedy orders: this one, the same with credits per stage, and D micro-batches at a time through the
/// waves. A worker holds at most D activations of its whole share.
///
/// Any D, N and w, else ConfigError. Bubble ratio at B = 2F and N = D: .333, .213, .119 for D = 4 and w = 1, 2, 4;
/// published is (2D-2)/(3wD+D-1). Source: Liu et al., SC'23.
[[nodiscard]] Schedule hanayo(const PipelineShape& shape);

[[nodiscard]] Generator hanayo_entry();

}  // namespace chimera
