#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"

// What V-Half and V-Min share: one pattern of F and I on stages that go down the workers and up again, repeated for
// each micro-batch.

namespace chimera {

/// The slots of micro-batch 0 on worker r, which holds stage r on the way down and 2D-1-r on the way up.
struct PatternSlots {
  std::int64_t forward_down = 0;   // F of stage r
  std::int64_t forward_up = 0;     // F of stage 2D-1-r
  std::int64_t gradient_up = 0;    // I of stage 2D-1-r
  std::int64_t gradient_down = 0;  // I of stage r
};

/// Micro-batch m runs in the slots of micro-batch 0 plus 6m, six being the ops of a micro-batch on a worker; each free
/// slot takes the W of the oldest I that has none yet, and the rest follow. Requires four slots that differ modulo 6.
/// Throws ConfigError, naming the schedule, where wave_pattern_refusal() has a reason.
/// Source: Qi et al., NeurIPS'24 (building blocks).
[[nodiscard]] Schedule wave_pattern(
    const char* name, const PipelineShape& shape,
    const std::function<PatternSlots(std::int64_t depth, std::int64_t worker)>& slots_of);

/// Why they do not take the shape: they take any D and N.
[[nodiscard]] std::optional<std::string> wave_pattern_refusal(const PipelineShape& shape);

/// Hanayo's waves with split backward: 2wD stages that run down the workers and up again, w times, in deepest-first
/// order (deepest_first.h) with D micro-batches on their way at most, computed for equal times and no latency.
///
/// Any D, N and w. A worker holds at most 2wD stages' activations, D of its whole share. At F = I = W and where D
/// divides N, the makespan is N(F+I+W) + (D-1)F/2w, which no order on one replica of loop or wave placement undercuts.
/// Throws ConfigError if D, N or w is not positive, or the ops are too many. Source: ours; Liu et al., SC'23
/// (placement), and Qi et al., ICLR'24 (split backward).
[[nodiscard]] Schedule hanayo_zb(const PipelineShape& shape);

[[nodiscard]] Generator hanayo_zb_entry();

/// Hanayo: the model in 2wD stages that run down the workers and up again, w times. With t = s mod 2D stage s is on
/// worker t, or on 2D-1-t where that is less than D. The order is greedy at F = 1, B = 2 a stage and no latency:
/// backward before forward, the older micro-batch first, then the deeper stage; for N > D the earliest end of three
/// greedy orders, of which this is one and another sends D micro-batches at a time through the waves. A worker holds at
/// most 2wD stages' activations, D of its whole share, by credits that cannot deadlock (see list_schedule).
///
/// Any D, N and w. Bubble ratio at B = 2F and N = D: .333, .213, .119 for D = 4 and w = 1, 2, 4; .368, .238, .135 for D
/// = 8; published is (2D-2)/(3wD+D-1). Throws ConfigError if D, N or w is not positive, or the ops are too many.
/// Source: Liu et al., SC'23.
[[nodiscard]] Schedule hanayo(const PipelineShape& shape);

[[nodiscard]] Generator hanayo_entry();

}  // namespace chimera
