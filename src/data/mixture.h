#pragma once

// A mixture of sources of training data: `--data "0.7:web 0.3:books"` takes 70 % of all samples from the path `web`.
// The source of a sample is a function of the sample's number in the run. So all ranks, and a resumed run, find the
// same source without communication.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// A source and its weight relative to the other sources.
struct MixtureEntry {
  double weight = 1;
  std::string path;
  friend bool operator==(const MixtureEntry&, const MixtureEntry&) = default;
};

/// Parses "0.7:a 0.3:b": positive weights and paths; a path may contain blanks. A text that does not start with a
/// weight, or that is the name of an existing file, is a single path with weight 1. Throws ConfigError for an invalid
/// weight or a missing path.
[[nodiscard]] std::vector<MixtureEntry> parse_mixture(const std::string& text);

/// Assigns the samples of a run to sources, in O(1) memory and time. Each block of kMixtureBlock consecutive samples
/// has samples of all sources in proportion to their weights, rounded by largest remainders. The seed and the number of
/// the block determine the order within the block.
class Mixture {
 public:
  /// Throws ConfigError if a source has no sample per block, because its weight is too small.
  Mixture(const std::vector<MixtureEntry>& entries, std::uint64_t seed);

  /// Where a sample is.
  struct Place {
    std::size_t source = 0;
    std::int64_t position = 0;  ///< number of the sample among the samples of this source, from 0
  };
  /// Returns the source of the run's sample `position` (from 0), and its number among the samples of that source. Each
  /// number of a source occurs once.
  [[nodiscard]] Place place(std::int64_t position) const;
  /// Returns [source]: the number of its samples in each block of kMixtureBlock samples.
  [[nodiscard]] std::vector<std::int64_t> shares() const;

 private:
  std::uint64_t seed_;
  std::vector<std::int64_t> ends_;  ///< [source]: end of its slots in a block
};

/// Number of consecutive samples that contain all sources in proportion.
inline constexpr std::int64_t kMixtureBlock = 10'000;

}  // namespace chimera
