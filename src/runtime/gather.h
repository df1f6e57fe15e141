#pragma once

// Numbers and texts of every rank on all ranks. A Transport has no collective for data of different sizes outside of
// training steps; such data is small (names, sizes, times at the end of a run), so it travels as doubles in sums with
// zeros, which are exact. Do not use these functions in a step: each takes two sums.

#include <cstdint>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Returns the numbers of all ranks, [rank], which may differ in their counts. Collective. Throws TransportError.
[[nodiscard]] std::vector<std::vector<double>> gather(const std::vector<double>& own, RankId rank,
                                                      std::int64_t num_ranks, Transport& transport);

/// Returns the texts of all ranks, [rank]. Collective. Throws TransportError.
[[nodiscard]] std::vector<std::string> gather_texts(const std::string& own, RankId rank, std::int64_t num_ranks,
                                                    Transport& transport);

}  // namespace chimera
