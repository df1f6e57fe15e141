#pragma once
// What V-Half and V-Min share: one pattern of F and I on stages that go down the workers and up again, repeated for
// each micro-batch.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "schedule/schedule.h"

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

}  // namespace chimera
