#pragma once
// Finds a shortest cycle in a deadlock, so that the error message is as short as possible. shortest_wait_cycle() finds
// a cycle of ops in a schedule (check_schedule.cc). shortest_cycle() finds one in any graph, for checks of programs
// (collectives.cc): workers that wait for each other, or all-reduces that workers start in different orders.

#include "schedule/dependencies.h"

namespace chimera {

/// Directed graph: successors[n] lists the nodes at the ends of n's edges.
using Graph = std::vector<std::vector<std::uint32_t>>;

/// Returns the nodes of a shortest directed cycle, in order; empty if there is no cycle. After 20 million edges, the
/// search ends with the shortest cycle found so far.
[[nodiscard]] std::vector<std::uint32_t> shortest_cycle(const Graph& successors);

/// An op that waits for the result of another op, which cannot run. Each is given by its place: worker and position in
/// the worker's list.
struct Wait {
  Place op;
  Place input;
  friend bool operator==(const Wait&, const Wait&) = default;
};

/// Returns a cycle with the fewest waits of the schedule in `table`. In a cycle, the input of each wait cannot run
/// because of the op of the next wait: this op is the input itself, or comes before it on the same worker. The first
/// wait follows the last. For example, worker 0 has the order a, b and worker 1 the order c, d. If a needs d and c
/// needs b, the cycle is (a waits for d), (c waits for b). If `pairs` is Together, both ops of a pair wait at the place
/// of the first op and complete at the place of the second. `visited` is the result of visit_in_dependency_order()
/// (schedule/dependencies.h): [worker], the number of ops that can run. The cycle is empty if all ops were visited, or
/// if only duplicate or misplaced ops block them. After kSearchEffort waits, the search ends with the shortest cycle
/// found so far.
[[nodiscard]] std::vector<Wait> shortest_wait_cycle(const OpTable& table, const std::vector<std::size_t>& visited,
                                                    Pairs pairs = Pairs::InOrder);
inline constexpr std::size_t kSearchEffort = 20'000'000;

}  // namespace chimera
