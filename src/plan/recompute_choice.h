#pragma once
// --recompute: which stages are to run their forward again before backward (activation checkpointing).

#include <cstdint>
#include <set>
#include <string>

#include "core/choices.h"
#include "core/ids.h"

namespace chimera {

/// Listed has no word of its own, but the list.
enum class RecomputeRule : std::uint8_t {
  None,
  Full,    ///< all stages
  Auto,    ///< those that have to, so that every worker fits in its memory
  Listed,  ///< given ones
};
template <>
inline constexpr auto kNames<RecomputeRule> = std::to_array<Named<RecomputeRule>>({{RecomputeRule::None, "none"},
                                                                                   {RecomputeRule::Full, "full"},
                                                                                   {RecomputeRule::Auto, "auto"}});

/// The value of --recompute.
struct RecomputeChoice {
  RecomputeRule rule = RecomputeRule::None;
  std::set<StageId> stages = {};  // where they are listed: at least one
  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

/// Reads `none`, `full`, `auto` or a list such as `0,1,5`. Throws ConfigError for anything else.
[[nodiscard]] RecomputeChoice parse_recompute(const std::string& text);

/// What parse_recompute() reads.
[[nodiscard]] std::string to_text(const RecomputeChoice& choice);

/// None, all, or these of `num_stages` stages.
[[nodiscard]] RecomputeChoice recompute_choice(const std::set<StageId>& stages, std::int64_t num_stages);

}  // namespace chimera
