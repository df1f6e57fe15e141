#pragma once

// Builds the memory limits of a search problem (SearchProblem::limits). An InFlightLimit has two lists: for each stage,
// the memory that a micro-batch in flight takes there, and for each worker, the memory that it has. limit_in_flight()
// counts in stage units, for --max-in-flight; limit_memory() counts in bytes, for --memory. A stage unit is the
// activations of one full micro-batch on all stages that a replica places on a worker. With S stages on D workers, one
// stage has D/S units.

#include <string>

#include "search/instance.h"
#include "search/layout.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns the size of a stage in stage units, D/S.
[[nodiscard]] double units_of_stage(const SearchLayout& layout);

/// Returns the size of a slice of a stage in stage units.
[[nodiscard]] double units_of_slice(const SearchLayout& layout);

/// Returns the limit of `units` stage units in flight per worker. Messages name it `flag`.
[[nodiscard]] InFlightLimit limit_in_flight(const SearchLayout& layout, double units, const std::string& flag);

/// Returns the limit of `bytes` per worker. The stages that one replica places on a worker have `weight_bytes` (with
/// gradients and optimizer state) and `activation_bytes` per micro-batch in flight. Message buffers do not count.
[[nodiscard]] InFlightLimit limit_memory(const SearchLayout& layout, double bytes, double weight_bytes,
                                         double activation_bytes, const std::string& flag);

/// Returns the limit of `bytes` per worker for stages with the sizes in `costs.memory`, which must be set. With
/// recomputation, a micro-batch in flight holds only the stage's input, and each worker reserves room for the other
/// activations of one op. With several slices, a slice also holds keys and values, and counts as the longest slice.
[[nodiscard]] InFlightLimit limit_memory(const SearchLayout& layout, double bytes, const CostModel& costs,
                                         const std::string& flag);

}  // namespace chimera
