#pragma once

// A profile of several nodes. `chimera profile --hosts` measures each node, and the links between two of them
// (NodeLinks). These functions combine the results into one MachineProfile (machine.h), which has different times for
// links within a node and links between nodes.

#include "plan/machine.h"

namespace chimera {

/// Measured times between two nodes, in seconds and bytes.
struct NodeLinks {
  LinkTimes messages;     ///< point-to-point messages
  LinkTimes sums;         ///< all-reduces
  double transfers = 0;   ///< Contention::node_transfers: slowdown per simultaneous transfer; 1: they divide the rate
  LinkTimes copies = {};  ///< CPU time of a message at each end (MachineProfile::node_message_copy)
  double step_overhead = 0;  ///< seconds of the collective over both nodes at the end of a step
  std::string source;        ///< text that says how and on which machine they were measured
  friend bool operator==(const NodeLinks&, const NodeLinks&) = default;
};

/// Returns `machine` with `links` between its nodes, and with `workers_per_node` workers on each node. If this is 0, a
/// node has as many workers as its cores allow, or, if workers have devices of their own, as many as `machine` says.
[[nodiscard]] MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links,
                                                std::int64_t workers_per_node = 0);

/// Returns JSON that node_links_from_json() reads back to the same value.
[[nodiscard]] std::string to_json(NodeLinks links);
/// Reads links from `text`; error messages name `source`. Throws ConfigError if a field is missing, unknown or out of
/// range.
[[nodiscard]] NodeLinks node_links_from_json(const std::string& text, const std::string& source);

/// Merges profiles of several nodes for plans over all of them. Layers measured by several profiles get the mean time
/// and the largest spread. Links within nodes, update time and overheads are means; memory is the minimum. Links
/// between nodes come from the last profile in which they differ from the links within nodes. If there is no such
/// profile, they equal the merged links within nodes. Throws ConfigError for fewer than two profiles, or if nodes
/// differ in cores, threads or workers.
[[nodiscard]] MachineProfile merge_machines(const std::vector<MachineProfile>& machines);

}  // namespace chimera
