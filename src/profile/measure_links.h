#pragma once

// Times of messages and all-reduces between two processes on one host (measure_links) or on two
// (measure_between_hosts), and the lines through them. All functions with ranks are collective; results are valid on
// rank 0. The first kind becomes LinkProfile::within_node, the second NodeLinks.

#include <string>
#include <vector>

#include "bench/statistics.h"
#include "plan/cluster_profile.h"
#include "profile/lockstep.h"
#include "transport/transport.h"

namespace chimera {

/// Messages are lower quartiles, because other programs only lengthen them. All-reduces are medians, because several
/// threads take turns.
struct LinkSamples {
  std::vector<TimedSize> messages;  // one way
  std::vector<TimedSize> sums;
  double at_once = 0;        // relative slowdown of simultaneous all-reduces; between hosts
  LinkTimes copies = {};     // CPU time of a message at each end; between hosts
  double step_overhead = 0;  // between hosts
};

/// Measures messages of 1 KiB to 4 MiB and all-reduces of 1 KiB to 64 MiB of ranks 0 and 1 (`group`) in about
/// `seconds`. Sizes end at the first that twice exceeds both a quarter of this time and 0.2 s.
[[nodiscard]] LinkSamples measure_links(Lockstep& ranks, ParameterGroupId group, double seconds);

/// Returns the mean extra time of a small message while all ranks except 0 and 1 compute.
[[nodiscard]] double measure_busy_delay(Lockstep& ranks, double seconds);

/// Convert lines to times of messages, and of all-reduces over two workers.
[[nodiscard]] LinkTimes as_messages(const Line& line);
[[nodiscard]] LinkTimes as_sums(const Line& line);

[[nodiscard]] std::string link_line(const char* name, const LinkTimes& link);
/// Returns two table rows: the lines' errors at each size, in percent.
[[nodiscard]] std::string regression_errors_of(const LinkSamples& links, const LinkTimes& messages,
                                               const LinkTimes& sums);

/// Measures links between two hosts, with a rank on each. Takes about `seconds`, longer on slow networks. `transport`
/// has profile_groups() and shares no memory.
[[nodiscard]] LinkSamples measure_between_hosts(Transport& transport, int rank, double seconds);
/// Fits lines through the shortest and longest all-reduce, and through messages beyond a burst.
[[nodiscard]] NodeLinks regress_links(const LinkSamples& links);
[[nodiscard]] std::string to_text(const NodeLinks& links);
[[nodiscard]] std::string to_text(const LinkSamples& links);

}  // namespace chimera
