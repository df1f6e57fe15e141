#pragma once

#include "transport/transport.h"

namespace chimera {

/// Returns the seconds to add to this rank's monotonic_seconds() to get rank 0's clock. All ranks call it together,
/// with no message in flight. The shortest of several queries to rank 0 counts, as if answered in its middle: the error
/// is at most half of that round trip. Source: D. L. Mills, "Internet Time Synchronization: The Network Time Protocol",
/// IEEE Trans. Commun. 39 (1991).
[[nodiscard]] double measure_clock_offset(Transport& transport, RankId rank, std::int64_t num_ranks);

}  // namespace chimera
