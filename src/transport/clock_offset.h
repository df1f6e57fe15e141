#pragma once

// Measures the difference between the clock of each rank and the clock of rank 0, as NTP does, so that traces of
// several hosts have one time axis (train/observe/observation.h).

#include "transport/transport.h"

namespace chimera {

/// Returns the seconds to add to this rank's monotonic_seconds() to get rank 0's clock. Collective, with no message in
/// flight. Uses the shortest of several round trips to rank 0; the error is at most half of it. Source: D. L. Mills,
/// "Internet Time Synchronization: The Network Time Protocol", IEEE Trans. Commun. 39 (1991).
[[nodiscard]] double measure_clock_offset(Transport& transport, RankId rank, std::int64_t num_ranks);

/// Measures the same for ranks on devices, whose transports make only the device wait for a message. Collective. The
/// error is the time between the returns of two ranks from a sum, about 0.1 ms.
[[nodiscard]] double clock_offset_by_sums(Transport& transport, RankId rank);

}  // namespace chimera
