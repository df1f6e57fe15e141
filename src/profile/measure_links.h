#pragma once

// Measures messages and all-reduces between two processes, on one host (measure_links()) or on two hosts
// (measure_between_hosts()). A line fitted through the times at several sizes gives alpha (latency) and beta (time per
// byte) of a link (LinkTimes in plan/machine.h): LinkProfile::within_node for one host, NodeLinks for two. All
// functions with a Lockstep or a transport are collective, and their results are valid on rank 0.

#include "bench/statistics.h"
#include "plan/cluster_profile.h"
#include "profile/lockstep.h"
#include "transport/transport.h"

namespace chimera {

/// Measured times by size. The time of a message is the lower quartile of its repetitions, because other programs only
/// lengthen it. The time of an all-reduce is the median, because several threads take turns in it.
struct LinkSamples {
  std::vector<TimedSize> messages;  // bytes, and seconds of a message one way
  std::vector<TimedSize> sums;      // bytes, and seconds of an all-reduce over two ranks
};

/// Measures messages of 1 KiB to 4 MiB and all-reduces of 1 KiB to 64 MiB between ranks 0 and 1, in about `seconds`.
/// `group` is a group of these two ranks. If a size takes longer than a quarter of this time, and than 0.2 s, in two
/// attempts, larger sizes are left out.
[[nodiscard]] LinkSamples measure_links(Lockstep& ranks, ParameterGroupId group, double seconds);

/// Returns the mean extra seconds of a small message between ranks 0 and 1 while all other ranks compute
/// (MachineProfile::busy_delay).
[[nodiscard]] double measure_busy_delay(Lockstep& ranks, double seconds);

/// Convert a fitted line to the alpha and beta of messages, or of all-reduces over two workers.
[[nodiscard]] LinkTimes to_message_times(const Line& line);
[[nodiscard]] LinkTimes to_all_reduce_times(const Line& line);

/// Returns a line of text with alpha, bandwidth and burst of a link.
[[nodiscard]] std::string link_line(const char* name, const LinkTimes& link);
/// Returns two table rows: the errors of the fitted lines at each size, in percent.
[[nodiscard]] std::string regression_errors_of(const LinkSamples& links, const LinkTimes& messages,
                                               const LinkTimes& sums);

/// Measures links between two hosts, with a rank on each. Takes about `seconds`, longer on slow networks. `transport`
/// must have the groups of profile_groups() (lockstep.h), and must not use shared memory. Sets `samples` to the
/// measured times, and returns lines fitted to them: through the shortest and the longest all-reduce, and through the
/// messages that are longer than a burst, the bytes that a throttled network lets pass at once.
[[nodiscard]] NodeLinks measure_between_hosts(Transport& transport, int rank, double seconds, LinkSamples& samples);
/// Returns the table that `chimera profile --hosts` prints.
[[nodiscard]] std::string to_text(const NodeLinks& links);

}  // namespace chimera
