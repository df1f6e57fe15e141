#pragma once
// Shortest cycles, for reports of deadlocks that a person can follow: of workers that wait for each other, and of ops
// in the orders of a schedule.

#include <cstdint>
#include <vector>

#include "schedule/dependencies.h"

namespace chimera {

/// Directed graph: successors[n] lists the nodes at the ends of n's edges.
using Graph = std::vector<std::vector<std::uint32_t>>;

/// Returns the nodes of a shortest directed cycle, in order; empty if there is no cycle. After 20 million edges, the
/// search ends with the shortest cycle found so far.
[[nodiscard]] std::vector<std::uint32_t> shortest_cycle(const Graph& successors);

/// `op` cannot run before `input`, which has not run.
struct Wait {
  Place op;
  Place input;
  friend bool operator==(const Wait&, const Wait&) = default;
};

/// Returns a cycle of waiting ops with the fewest waits. For each wait, the next wait's op is on the worker of its
/// input, at the input or before it; the first wait follows the last. With Pairs::Together, both ops of a pair wait at
/// the place of the first and complete at the place of the second. `visited` is the result of
/// visit_in_dependency_order(). The cycle is empty if all ops were visited, or if only duplicate or misplaced ops block
/// them. After kSearchEffort waits, the search ends with the shortest cycle found so far.
[[nodiscard]] std::vector<Wait> shortest_wait_cycle(const OpTable& table, const std::vector<std::size_t>& visited,
                                                    Pairs pairs = Pairs::InOrder);
inline constexpr std::size_t kSearchEffort = 20'000'000;

}  // namespace chimera
