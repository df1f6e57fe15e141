#pragma once
// How much a worker may hold, in stage units or in bytes.

#include <string>

#include "search/instance.h"
#include "search/layout.h"
#include "simulate/costs.h"

namespace chimera {

/// A stage in stage units: a worker's share of the model is 1, one of S stages on D workers D/S.
[[nodiscard]] double units_of_stage(const Layout& layout);

/// At most `units` stage units in flight on each worker. `flag` is what messages call the limit.
[[nodiscard]] HoldingLimit limit_in_flight(const Layout& layout, double units, const std::string& flag);

/// At most `bytes` on each worker, where a worker's share has `weight_bytes` of weights (and of whatever goes with
/// them), and of activations `activation_bytes` for a micro-batch in flight. Buffers of messages do not count.
[[nodiscard]] HoldingLimit limit_memory(const Layout& layout, double bytes, double weight_bytes,
                                        double activation_bytes, const std::string& flag);

/// The same by the costs' bytes of each stage (`memory`, which must be there): weights, gradients, optimizer state and
/// activations. With recomputation a micro-batch in flight holds its boundary, and one at a time its activations.
[[nodiscard]] HoldingLimit limit_memory(const Layout& layout, double bytes, const CostModel& costs,
                                        const std::string& flag);

}  // namespace chimera
