#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/choices.h"
#include "core/ids.h"

namespace chimera {

enum class RecomputeRule : std::uint8_t {
  None,
  Attention,  ///< no stages; the attention sub-layers of all blocks (MicroBatch::recompute_attention)
  Full,       ///< all stages
  Auto,       ///< fewest stages that fit in memory
  Listed,     ///< has no name on the command line
};
template <>
inline constexpr auto kNames<RecomputeRule> = std::to_array<Named<RecomputeRule>>({{RecomputeRule::None, "none"},
                                                                                   {RecomputeRule::Attention,
                                                                                    "attention"},
                                                                                   {RecomputeRule::Full, "full"},
                                                                                   {RecomputeRule::Auto, "auto"}});

struct RecomputeChoice {
  RecomputeRule rule = RecomputeRule::None;
  std::set<StageId> stages = {};  // stages of Listed, at least one
  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

/// Reads `none`, `attention`, `full`, `auto` or a list such as `0,1,5`. Throws ConfigError for anything else.
[[nodiscard]] RecomputeChoice parse_recompute(const std::string& text);

/// Reads the value of --offload: `none`, `full`, `auto` or a list.
[[nodiscard]] RecomputeChoice parse_offload(const std::string& text);

/// Returns text that parse_recompute() reads back.
[[nodiscard]] std::string to_text(const RecomputeChoice& choice);

[[nodiscard]] RecomputeChoice recompute_choice(const std::set<StageId>& stages, std::int64_t num_stages);

}  // namespace chimera
