#pragma once
// Ranks on several machines have several clocks: how far this one's is from that of rank 0.

#include "transport/transport.h"

namespace chimera {

/// What to add to this rank's monotonic_seconds() to get rank 0's. All ranks call it together, with no message under
/// way. Each asks rank 0 a few times for its time; of the shortest round trip the answer counts as given in the middle,
/// so that the error is at most half of that round trip. Source: D. L. Mills, "Internet Time Synchronization: The
/// Network Time Protocol", IEEE Trans. Commun. 39 (1991).
[[nodiscard]] double measure_clock_offset(Transport& transport, RankId rank, std::int64_t num_ranks);

}  // namespace chimera
