#pragma once
// What bounds on a problem ask of its lanes.

#include <cstdint>
#include <vector>

#include "search/instance.h"

namespace chimera {

/// All lanes, each after its input and the lane before it in its chain: forwards from the first stage on, then input
/// gradients from the last one back, then weight gradients.
[[nodiscard]] std::vector<std::size_t> lanes_in_order(const Instance& instance);

/// The most micro-batches that the chain can have in flight if it has its worker for itself; at least 1.
[[nodiscard]] std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain);

/// The most micro-batches that the worker can have in flight, if each counts as the smallest one on it.
[[nodiscard]] std::int64_t most_in_flight(const Instance& instance, std::size_t worker);

}  // namespace chimera
