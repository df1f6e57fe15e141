#pragma once

// Settings that must be equal on all ranks, as hashes. Ranks compare them at rendezvous, before a difference can become
// a deadlock or a wrong sum.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// Setting that must be equal on all ranks.
struct FingerprintPart {
  std::string name;  ///< for error messages: "the build", "--seed"
  std::uint64_t hash = 0;
};

/// Settings compared at rendezvous, at most kFingerprintParts. The first is the build, since builds may have different
/// lists.
using Fingerprint = std::vector<FingerprintPart>;
inline constexpr std::size_t kFingerprintParts = 63;

/// Wire format: number of parts, hashes, zero padding.
using FingerprintWords = std::vector<std::int64_t>;  // [1 + kFingerprintParts]
[[nodiscard]] FingerprintWords to_words(const Fingerprint& fingerprint);

/// Compares the words of all ranks with the most frequent ones (in a tie, the lowest rank's). Throws ConfigError on a
/// rank that differs, naming the parts in `own`, and PeerLostError on the others, naming the ranks that differ.
void require_equal(const Fingerprint& own, const std::vector<FingerprintWords>& of_ranks, int rank);

}  // namespace chimera
