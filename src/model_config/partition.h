#pragma once

// Cuts a model into pipeline stages. A stage has consecutive transformer blocks (StageLayers); the first also has the
// embedding, the last the head. A PartitionChoice is the user's --partition: auto, even, balanced (stages that take
// equal time), or a list of numbers of blocks. resolve_partition() in plan/balance.h turns it into stages, because
// balanced stages depend on the schedule.

#include <algorithm>
#include <array>

#include "core/choices.h"

namespace chimera {

/// Activations of a block that backward computes again instead of keeping them. Cheap: outputs of norms and of the
/// feed-forward's activation function. Attention: the attention sub-layer. Full: all but the block's input.
enum class RecomputeLevel : std::uint8_t { None, Cheap, Attention, Full };
template <>
inline constexpr auto kNames<RecomputeLevel> = in_order<RecomputeLevel>("none", "cheap", "attention", "full");
/// All levels but None. In a stage, the first blocks are at Full, then come blocks at Attention, at Cheap and at None:
/// backward visits the last block first, so when it computes a whole block again, the activations of most others are
/// freed.
inline constexpr auto kRecomputeLevels =
    std::to_array({RecomputeLevel::Cheap, RecomputeLevel::Attention, RecomputeLevel::Full});

/// Numbers of a stage's blocks at the levels above None.
struct BlockLevels {
  std::array<std::int64_t, 4> counts = {};  // [RecomputeLevel]; the element of None is 0

  /// Returns the numbers for `blocks` blocks at one level.
  [[nodiscard]] static BlockLevels at(RecomputeLevel level, std::int64_t blocks) {
    BlockLevels levels;
    if (level != RecomputeLevel::None) levels[level] = blocks;
    return levels;
  }
  /// Returns the number of blocks at a level. Do not set the number of None.
  [[nodiscard]] std::int64_t& operator[](RecomputeLevel level) { return counts[static_cast<std::size_t>(level)]; }
  [[nodiscard]] std::int64_t operator[](RecomputeLevel level) const { return counts[static_cast<std::size_t>(level)]; }
  /// Returns the number of blocks at a level above None.
  [[nodiscard]] std::int64_t all() const { return counts[1] + counts[2] + counts[3]; }
  /// Returns the level of the stage's block `index`, from 0.
  [[nodiscard]] RecomputeLevel level_of(std::int64_t index) const {
    for (auto level = kRecomputeLevels.rbegin(); level != kRecomputeLevels.rend(); index -= (*this)[*level++])
      if (index < (*this)[*level]) return *level;
    return RecomputeLevel::None;
  }
  friend bool operator==(const BlockLevels&, const BlockLevels&) = default;
};

/// Layers of a stage: blocks first_layer .. end_layer - 1. If `embedding`, also the embedding; if `head`, also the head
/// (final norm, output matrices, loss).
struct StageLayers {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool embedding = false;
  bool head = false;
  BlockLevels levels = {};     // at most blocks() in total
  std::int64_t on_device = 0;  // number of last blocks whose activations stay on the device if the stage is offloaded
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
inline constexpr auto kNames<PartitionRule> = in_order<PartitionRule>("even", "balanced", "auto");

/// A rule and, for Listed, its list.
struct PartitionChoice {
  PartitionRule rule = PartitionRule::Even;
  std::vector<std::int64_t> layers = {};  // [stage]: number of blocks, for Listed; else empty
  friend bool operator==(const PartitionChoice&, const PartitionChoice&) = default;
};

/// Returns the numbers of a list such as `8,9,9,6`, each of 32 bits, or nothing for any other text.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_small_numbers(std::string_view list);

/// Reads `auto`, `even`, `balanced` or a list such as `8,9,9,6`. Throws ConfigError for anything else.
[[nodiscard]] PartitionChoice parse_partition(const std::string& text);

/// Returns the text that parse_partition() parses.
[[nodiscard]] std::string to_text(const PartitionChoice& choice);

/// Returns the number of blocks of each stage as a list that parse_partition() parses.
[[nodiscard]] std::string to_text(const std::vector<StageLayers>& partition);

}  // namespace chimera
