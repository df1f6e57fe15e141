#pragma once

#include <string>

#include "search/instance.h"
#include "search/layout.h"
#include "simulate/costs.h"

// Memory limits of the search, as sizes of stages and room of workers (HoldingLimit): counted in micro-batches in
// flight or in bytes.

namespace chimera {

/// Returns a stage's size in stage units: D/S for S stages on D workers.
[[nodiscard]] double units_of_stage(const Layout& layout);

/// Returns the size of a slice of a stage in stage units.
[[nodiscard]] double units_of_slice(const Layout& layout);

/// Returns the limit of `units` stage units in flight per worker, named `flag` in messages.
[[nodiscard]] HoldingLimit limit_in_flight(const Layout& layout, double units, const std::string& flag);

/// Returns the limit of `bytes` per worker. A worker's share of the model has `weight_bytes` (with gradients and
/// optimizer state), and `activation_bytes` per micro-batch in flight. Message buffers do not count.
[[nodiscard]] HoldingLimit limit_memory(const Layout& layout, double bytes, double weight_bytes,
                                        double activation_bytes, const std::string& flag);

/// Uses the stages' bytes in `costs.memory`, which must be set. With recomputation, micro-batches in flight hold their
/// boundary, and one at a time all activations. Slices also hold keys and values, and each counts as the longest.
[[nodiscard]] HoldingLimit limit_memory(const Layout& layout, double bytes, const CostModel& costs,
                                        const std::string& flag);

}  // namespace chimera
