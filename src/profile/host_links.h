#pragma once
// Links between two nodes, measured by a process on each of them.

#include <string>

#include "plan/node_links.h"
#include "profile/link_bench.h"
#include "transport/transport.h"

namespace chimera {

/// Between two hosts: one of two ranks, each on one of them, over a transport with profile_groups() that shares no
/// memory. Takes about so many seconds, on a slow network a few times as many. Rank 0 gets what was measured.
[[nodiscard]] LinkSamples measure_between_hosts(Transport& transport, int rank, double seconds);
/// Lines from the shortest to the longest of them.
[[nodiscard]] NodeLinks fit_links(const LinkSamples& links);
[[nodiscard]] std::string to_text(const NodeLinks& links);
/// The fitted lines, and how far they are off.
[[nodiscard]] std::string to_text(const LinkSamples& links);

}  // namespace chimera
