#pragma once

#include <cstdint>
#include <vector>

#include "schedule/dependencies.h"

namespace chimera {

/// successors[n]: nodes that node n waits for (or precedes).
using Graph = std::vector<std::vector<std::uint32_t>>;

/// Returns the nodes of a shortest directed cycle, in order; empty if there is no cycle. Once 20 million edges are
/// searched, it is the shortest cycle so far.
[[nodiscard]] std::vector<std::uint32_t> shortest_cycle(const Graph& successors);

/// `op` cannot run before `input`, which has not run.
struct Wait {
  Place op;
  Place input;
  friend bool operator==(const Wait&, const Wait&) = default;
};

/// Returns a cycle of waiting ops with the fewest waits. Each input is at or after the next wait's op on one worker,
/// and the last input at or after the first op. With Pairs::Together, both ops of a pair wait at the place of the first
/// and complete at the place of the second. `visited` is the result of visit_in_dependency_order; the cycle is empty if
/// all ops were visited. Once kSearchEffort waits are tried, it is the shortest cycle so far.
[[nodiscard]] std::vector<Wait> shortest_wait_cycle(const OpTable& table, const std::vector<std::size_t>& visited,
                                                    Pairs pairs = Pairs::InOrder);
inline constexpr std::size_t kSearchEffort = 20'000'000;

}  // namespace chimera
