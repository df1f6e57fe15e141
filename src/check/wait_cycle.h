#pragma once

#include <cstdint>
#include <vector>

#include "schedule/dependencies.h"

namespace chimera {

/// successors[n]: the nodes that node n waits for (or comes before).
using Graph = std::vector<std::vector<std::uint32_t>>;

/// The nodes of a shortest directed cycle, in order; none where the graph has no cycle. Nodes that no cycle can pass
/// are struck off first, in linear time; then a breadth-first search from each node looks for a cycle shorter than the
/// best so far. These look at 20 million edges in all at most: on a graph that needs more, the shortest cycle seen.
[[nodiscard]] std::vector<std::uint32_t> shortest_cycle(const Graph& successors);

/// `op` cannot run before `input`, which has not run.
struct Wait {
  Place op;
  Place input;
  friend bool operator==(const Wait&, const Wait&) = default;
};

/// A cycle of waiting ops with the fewest waits: each input stands at or behind the next wait's op on one worker, the
/// last one's at or behind the first's. Where pairs run together, both ops of one stand at the place of the first for
/// what waits, and of the second for what is waited for. `visited[w]` counts the ops of worker w that can run, as
/// visit_in_dependency_order returns it; no cycle where that is all of them.
///
/// Worker orders are chains, so what an op waits for in k waits is a prefix of each worker's stuck ops. The search from
/// one wait therefore looks at every wait once, and goes no deeper than the best cycle so far; searches start from the
/// front of the workers' lists. Effort: linear to find some cycle, then at most kSearchEffort looks at a wait in all.
/// A cycle found within that is a shortest one; where the effort ran out, the shortest of those seen.
[[nodiscard]] std::vector<Wait> shortest_wait_cycle(const OpTable& table, const std::vector<std::size_t>& visited,
                                                    Pairs pairs = Pairs::InOrder);
inline constexpr std::size_t kSearchEffort = 20'000'000;

}  // namespace chimera
