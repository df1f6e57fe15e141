#pragma once
// What ranks must have in common, compared when they meet: a run of ranks that differ would stop, or train on numbers
// that mean different things.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// One thing that all ranks must have in common.
struct FingerprintPart {
  std::string name;  ///< as it stands in an error: "the build", "--seed"
  std::uint64_t hash = 0;
};

/// The first part is the build: ranks of different builds may not even have the same list. At most kFingerprintParts.
using Fingerprint = std::vector<FingerprintPart>;
inline constexpr std::size_t kFingerprintParts = 63;

/// A fingerprint as it travels: the number of parts, their hashes, zeros.
using FingerprintWords = std::vector<std::int64_t>;  // [1 + kFingerprintParts]
[[nodiscard]] FingerprintWords to_words(const Fingerprint& fingerprint);

/// Compares what all ranks sent, own words included. The most frequent words count as right, of equals those of the
/// lowest rank. Throws ConfigError on a rank that differs from them, naming the parts, and PeerLostError, naming the
/// ranks that differ, on the others. `own` gives the names.
void require_equal(const Fingerprint& own, const std::vector<FingerprintWords>& of_ranks, int rank);

}  // namespace chimera
