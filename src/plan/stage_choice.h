#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/choices.h"
#include "core/ids.h"

namespace chimera {

enum class StageRule : std::uint8_t {
  None,
  Attention,  ///< no stages; the attention sub-layers of all blocks (MicroBatch::recompute_attention)
  Full,       ///< all stages
  Auto,       ///< fewest stages that fit in memory
  Listed,     ///< has no name on the command line
};
template <>
inline constexpr auto kNames<StageRule> = std::to_array<Named<StageRule>>({{StageRule::None, "none"},
                                                                           {StageRule::Attention, "attention"},
                                                                           {StageRule::Full, "full"},
                                                                           {StageRule::Auto, "auto"}});

/// Stages whose activations are recomputed, or offloaded.
struct StageChoice {
  StageRule rule = StageRule::None;
  std::set<StageId> stages = {};  // of Listed, at least one
  friend bool operator==(const StageChoice&, const StageChoice&) = default;
};

/// Reads `none`, `attention`, `full`, `auto` or a list such as `0,1,5`. Throws ConfigError for anything else.
[[nodiscard]] StageChoice parse_recompute(const std::string& text);

/// Reads the value of --offload: `none`, `full`, `auto` or a list.
[[nodiscard]] StageChoice parse_offload(const std::string& text);

/// Returns text that parse_recompute() reads back.
[[nodiscard]] std::string to_text(const StageChoice& choice);

[[nodiscard]] StageChoice stage_choice(const std::set<StageId>& stages, std::int64_t num_stages);

}  // namespace chimera
