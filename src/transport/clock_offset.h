#pragma once

// Measures how far the clock of each rank is behind rank 0's, as NTP does: half of the shortest round trip. Traces of
// several hosts use it.

#include "transport/transport.h"

namespace chimera {

/// Returns the seconds to add to this rank's monotonic_seconds() to get rank 0's clock. Collective, with no message in
/// flight. Uses the shortest of several round trips to rank 0; the error is at most half of it. Source: D. L. Mills,
/// "Internet Time Synchronization: The Network Time Protocol", IEEE Trans. Commun. 39 (1991).
[[nodiscard]] double measure_clock_offset(Transport& transport, RankId rank, std::int64_t num_ranks);

}  // namespace chimera
