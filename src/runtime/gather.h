#pragma once

// All-gather of numbers or texts with a different size on each rank, outside of training steps, for small data such as
// names, sizes, or times at the end of a run. A Transport has no such collective, so these functions use all_sum()
// twice: for the sizes, then for the data. Each rank adds zeros at the places of the other ranks, which is exact.

#include <cstdint>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Returns [rank]: the numbers of each rank, which may differ in their counts. `own` are the numbers of `rank`, the
/// calling rank. Collective over all ranks. Throws TransportError.
[[nodiscard]] std::vector<std::vector<double>> gather(const std::vector<double>& own, RankId rank,
                                                      std::int64_t num_ranks, Transport& transport);

/// Returns [rank]: the text of each rank. Collective over all ranks. Throws TransportError.
[[nodiscard]] std::vector<std::string> gather_texts(const std::string& own, RankId rank, std::int64_t num_ranks,
                                                    Transport& transport);

}  // namespace chimera
