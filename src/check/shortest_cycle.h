#pragma once

#include <cstdint>
#include <vector>

namespace chimera {

/// successors[n]: the nodes that node n waits for (or comes before).
using Graph = std::vector<std::vector<std::uint32_t>>;

/// The nodes of a shortest directed cycle, in order; none where the graph has no cycle. Nodes that no cycle can pass
/// are struck off first, in linear time; then a breadth-first search from each node looks for a cycle shorter than the
/// best so far. These look at 20 million edges in all at most: on a graph that needs more, the shortest cycle seen.
[[nodiscard]] std::vector<std::uint32_t> shortest_cycle(const Graph& successors);

}  // namespace chimera
