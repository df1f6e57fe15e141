#pragma once

// Hashes of the settings that must be equal on all ranks, for example of `--seed`. Ranks compare them at rendezvous,
// because different settings could lead to deadlocks or wrong sums. fingerprint() (train/setup/job_identity.h) makes
// them.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// Setting that must be equal on all ranks.
struct FingerprintPart {
  std::string name;  ///< for error messages: "the build", "--seed"
  std::uint64_t hash = 0;
};

/// All settings to compare, at most kFingerprintParts. The first is the build of the program, because different builds
/// may compare different settings.
using Fingerprint = std::vector<FingerprintPart>;
inline constexpr std::size_t kFingerprintParts = 63;

/// A fingerprint as ranks send it: number of parts, hashes, zeros up to a fixed size. The names are not sent.
using FingerprintWords = std::vector<std::int64_t>;  // [1 + kFingerprintParts]
/// Converts a fingerprint.
[[nodiscard]] FingerprintWords to_words(const Fingerprint& fingerprint);

/// Compares the words of all ranks (`of_ranks`, by rank). The most frequent words are assumed to be right; in a tie,
/// the words of the lowest rank. Throws ConfigError on a rank that differs, which names its different settings, and
/// PeerLostError on the other ranks, which names the ranks that differ.
void require_equal(const Fingerprint& own, const std::vector<FingerprintWords>& of_ranks, int rank);

}  // namespace chimera
