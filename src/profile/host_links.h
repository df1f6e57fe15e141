#pragma once
// Links between two nodes, measured by a process on each of them.

#include <string>

#include "plan/machine.h"
#include "profile/link_bench.h"
#include "transport/transport.h"

namespace chimera {

/// Links between two nodes, over their network, in seconds and bytes.
struct NodeLinks {
  LinkTimes messages;
  LinkTimes sums;
  double transfers = 0;      ///< Contention::node_transfers
  LinkTimes copies = {};     ///< MachineProfile::node_message_copy
  double step_overhead = 0;  ///< seconds of a step that ranks of both end together
  std::string source;        ///< by what they were measured, and where
};

/// Between two hosts: one of two ranks, each on one of them, over a transport with profile_groups() that shares no
/// memory. Takes about so many seconds, on a slow network a few times as many. Rank 0 gets what was measured.
[[nodiscard]] LinkSamples measure_between_hosts(Transport& transport, int rank, double seconds);
/// Lines from the shortest to the longest of them.
[[nodiscard]] NodeLinks fit_links(const LinkSamples& links);
/// The machine with those links between its nodes, each of which has that many workers; 0: as many as its cores have
/// room for, where its workers share cores.
[[nodiscard]] MachineProfile with_links_between(MachineProfile machine, const NodeLinks& links,
                                                std::int64_t workers_per_node = 0);
[[nodiscard]] std::string to_text(const NodeLinks& links);
/// The fitted lines, and how far they are off.
[[nodiscard]] std::string to_text(const LinkSamples& links);

}  // namespace chimera
