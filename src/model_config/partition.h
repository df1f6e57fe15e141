#pragma once

// Cuts a model into pipeline stages. A stage has consecutive transformer blocks (StageLayers); the first also has the
// embedding, the last the head. A PartitionChoice is the user's --partition: auto, even, balanced (stages that take
// equal time), or a list of numbers of blocks. resolve_partition() in plan/balance.h turns it into stages, because
// balanced stages depend on the schedule.

#include <cstdint>
#include <string>
#include <vector>

#include "core/choices.h"

namespace chimera {

/// Layers of a stage: blocks first_layer .. end_layer - 1. If `embedding`, also the embedding; if `head`, also the head
/// (final norm, output matrices, loss).
struct StageLayers {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool embedding = false;
  bool head = false;
  [[nodiscard]] std::int64_t blocks() const { return end_layer - first_layer; }
  friend bool operator==(const StageLayers&, const StageLayers&) = default;
};

/// Divides `layers` blocks evenly into `stages` stages; the first (layers mod stages) stages have one block more. The
/// first stage has the embedding, the last the head. Throws ConfigError unless 1 <= stages <= layers.
[[nodiscard]] std::vector<StageLayers> even_partition(std::int64_t layers, std::int64_t stages);

/// Divides `layers` blocks into stages of `counts[stage]` blocks, with embedding and head as above. Throws ConfigError
/// unless there are `stages` counts, each at least 1, that add up to `layers`.
[[nodiscard]] std::vector<StageLayers> explicit_partition(const std::vector<std::int64_t>& counts, std::int64_t layers,
                                                          std::int64_t stages);

/// Even: equally many blocks. Balanced: stages that take equal time. Auto: balanced if its simulated step is faster,
/// else even. Listed: the user's numbers; it has no name, because its text is the list.
enum class PartitionRule : std::uint8_t { Even, Balanced, Auto, Listed };
template <>
inline constexpr auto kNames<PartitionRule> = std::to_array<Named<PartitionRule>>(
    {{PartitionRule::Even, "even"}, {PartitionRule::Balanced, "balanced"}, {PartitionRule::Auto, "auto"}});

/// A rule and, for Listed, its list.
struct PartitionChoice {
  PartitionRule rule = PartitionRule::Even;
  std::vector<std::int64_t> layers = {};  // [stage]: number of blocks, for Listed; else empty
  friend bool operator==(const PartitionChoice&, const PartitionChoice&) = default;
};

/// Reads `auto`, `even`, `balanced` or a list such as `8,9,9,6`. Throws ConfigError for anything else.
[[nodiscard]] PartitionChoice parse_partition(const std::string& text);

/// Returns the text that parse_partition() parses.
[[nodiscard]] std::string to_text(const PartitionChoice& choice);

/// Returns the number of blocks of each stage as a list that parse_partition() parses.
[[nodiscard]] std::string to_text(const std::vector<StageLayers>& partition);

}  // namespace chimera
