#pragma once

// A mixture of sources: `--data "0.7:web 0.3:books"` takes 70 % of all samples from the first. Which sample comes from
// which source is a function of the sample's number, so that every worker, and a resumed run, agrees without messages.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

struct MixtureEntry {
  double weight = 1;
  std::string path;
  friend bool operator==(const MixtureEntry&, const MixtureEntry&) = default;
};

/// Parses "0.7:a 0.3:b": positive weights, and paths, perhaps with blanks. Other texts, and names of files, are one
/// path. Throws ConfigError for an invalid weight or a missing path.
[[nodiscard]] std::vector<MixtureEntry> parse_mixture(const std::string& text);

/// Assigns sample positions to sources, in O(1) memory and time. In each block of kMixtureBlock samples a source has
/// its share of the weights, rounded by largest remainders. Seed and block determine the order.
class Mixture {
 public:
  /// Throws ConfigError if a source has no sample per block.
  Mixture(const std::vector<MixtureEntry>& entries, std::uint64_t seed);

  struct Place {
    std::size_t source = 0;
    std::int64_t position = 0;  ///< earlier samples of this source
  };
  [[nodiscard]] Place place(std::int64_t position) const;
  /// Returns [source]: samples per block.
  [[nodiscard]] std::vector<std::int64_t> shares() const;

 private:
  std::uint64_t seed_;
  std::vector<std::int64_t> ends_;  ///< [source]: end of its slots in a block
};

inline constexpr std::int64_t kMixtureBlock = 10'000;

}  // namespace chimera
