#pragma once
// How a model is cut into stages of consecutive layers.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// The part of a model that one stage holds: blocks first_layer .. end_layer - 1, perhaps the embedding before them and
/// the head (final norm, output matrices, loss) after them.
struct StageLayers {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool embedding = false;
  bool head = false;
  friend bool operator==(const StageLayers&, const StageLayers&) = default;
};

/// Cuts `layers` blocks into `stages` runs of equal length; the first (layers mod stages) of them are one longer. The
/// embedding is on the first stage, the head on the last.
/// Throws ConfigError unless 1 <= stages <= layers.
[[nodiscard]] std::vector<StageLayers> even_partition(std::int64_t layers, std::int64_t stages);

/// Cuts `layers` blocks into `stages` runs of these lengths; embedding and head as above.
/// Throws ConfigError unless there are as many counts as stages, each at least 1, that add up to `layers`.
[[nodiscard]] std::vector<StageLayers> explicit_partition(const std::vector<std::int64_t>& counts, std::int64_t layers,
                                                          std::int64_t stages);

/// The counts in a list such as `8,9,9,6`. Throws ConfigError, as of a value of --partition, for anything else.
[[nodiscard]] std::vector<std::int64_t> parse_layer_counts(const std::string& text);

/// The blocks of each stage, as parse_layer_counts() reads them.
[[nodiscard]] std::string to_text(const std::vector<StageLayers>& partition);

}  // namespace chimera
