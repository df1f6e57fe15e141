#pragma once
// Sources in given shares: which source the sample at any place comes from, without a list.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// A source and its share of the samples.
struct MixtureEntry {
  double weight = 1;
  std::string path;
  friend bool operator==(const MixtureEntry&, const MixtureEntry&) = default;
};

/// Reads "0.7:a 0.3:b": weights above 0, of any sum, and paths, which may have blanks. A text that names a file, or
/// does not begin with a number and a colon, is one path. Throws ConfigError for weights that are no such numbers.
[[nodiscard]] std::vector<MixtureEntry> parse_mixture(const std::string& text);

/// Each source gives exactly its share of every kMixtureBlock samples in a row: weight / sum of weights, rounded to
/// whole samples by largest remainders. Their order in the block is a permutation of its own, by seed and block. So
/// where a sample comes from is a function of seed and place, in O(1) memory and time.
class Mixture {
 public:
  /// Throws ConfigError where a source's share is less than half a sample of a block.
  Mixture(const std::vector<MixtureEntry>& entries, std::uint64_t seed);

  struct Place {
    std::size_t source = 0;
    std::int64_t position = 0;  ///< how many samples of that source the blocks and slots before it have
  };
  /// Where the sample at place `position` of the order of all lies. One source: at that position.
  [[nodiscard]] Place place(std::int64_t position) const;
  /// Samples of each source in a block.
  [[nodiscard]] std::vector<std::int64_t> shares() const;

 private:
  std::uint64_t seed_;
  std::vector<std::int64_t> ends_;  ///< [source]: the first slot of a block that is the next source's
};

/// Samples of a block.
inline constexpr std::int64_t kMixtureBlock = 10'000;

}  // namespace chimera
