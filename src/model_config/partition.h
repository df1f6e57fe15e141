#pragma once
// How a model is cut into stages of consecutive layers.

#include <cstdint>
#include <string>
#include <vector>

#include "core/choices.h"

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

/// How a model is to be cut. Listed has no word of its own, but the list.
enum class PartitionRule : std::uint8_t { Even, Balanced, Listed };
template <>
inline constexpr auto kNames<PartitionRule> =
    std::to_array<Named<PartitionRule>>({{PartitionRule::Even, "even"}, {PartitionRule::Balanced, "balanced"}});

/// The value of --partition.
struct PartitionChoice {
  PartitionRule rule = PartitionRule::Even;
  std::vector<std::int64_t> layers = {};  // of each stage, where they are listed
  friend bool operator==(const PartitionChoice&, const PartitionChoice&) = default;
};

/// Reads `even`, `balanced` or a list such as `8,9,9,6`. Throws ConfigError for anything else.
[[nodiscard]] PartitionChoice parse_partition(const std::string& text);

/// What parse_partition() reads.
[[nodiscard]] std::string to_text(const PartitionChoice& choice);

/// The blocks of each stage, as parse_partition() reads them.
[[nodiscard]] std::string to_text(const std::vector<StageLayers>& partition);

}  // namespace chimera
