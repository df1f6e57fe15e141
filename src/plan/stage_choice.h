#pragma once

// Stages that recompute their activations (--recompute) or offload them to host memory (--offload). A StageChoice is
// the value of such a flag: a rule such as `full`, or a list of stages. resolve_stages() converts it to stages of a
// schedule. For the rule `auto`, the stages depend on memory, so the caller passes a function that chooses them;
// usually the caller is choose_stages() (plan/worker_memory.h).

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/ids.h"

namespace chimera {

/// Rule that selects stages.
enum class StageRule : std::uint8_t {
  None,       ///< no stages
  Attention,  ///< no whole stages, but the attention sub-layers of all blocks (MicroBatch::recompute_attention)
  Full,       ///< all stages
  Auto,       ///< as few stages as memory requires
  Listed,     ///< StageChoice::stages; on the command line a list such as 0,1
};
template <>
inline constexpr auto kNames<StageRule> = std::to_array<Named<StageRule>>({{StageRule::None, "none"},
                                                                           {StageRule::Attention, "attention"},
                                                                           {StageRule::Full, "full"},
                                                                           {StageRule::Auto, "auto"}});

/// Stages whose activations are recomputed, or offloaded.
struct StageChoice {
  StageRule rule = StageRule::None;
  std::set<StageId> stages = {};  // for Listed: at least one; else empty
  friend bool operator==(const StageChoice&, const StageChoice&) = default;
};

/// A flag or field whose value is a StageChoice.
struct StageFlag {
  std::string name;                // in messages
  std::vector<std::string> rules;  // names of the rules that it accepts
};

inline const StageFlag kRecomputeFlag{.name = "--recompute", .rules = names_of<StageRule>()};
inline const StageFlag kOffloadFlag{.name = "--offload", .rules = {"none", "full", "auto"}};

/// Parses the name of a rule that the flag accepts, or a list of stages such as `0,1,5`. Throws ConfigError for other
/// texts.
[[nodiscard]] StageChoice parse_stages(const StageFlag& flag, const std::string& text);

/// Returns text that parse_stages() reads back.
[[nodiscard]] std::string to_text(const StageChoice& choice);

/// Returns the shortest choice of these stages: `none`, `full` or a list.
[[nodiscard]] StageChoice stage_choice(const std::set<StageId>& stages, std::int64_t num_stages);

/// Returns stages 0 to `count` - 1.
[[nodiscard]] std::set<StageId> all_stages(std::int64_t count);

/// Returns the stages that `choice` selects from the `num_stages` stages of a schedule; none for Attention. Calls
/// `automatic` for the rule Auto. Throws ConfigError for a stage that does not exist, and for a rule that the flag does
/// not accept: `--offload 4: expected none, full, auto, or stages of 0 to 3 such as 0,1`.
[[nodiscard]] std::set<StageId> resolve_stages(const StageChoice& choice, const StageFlag& flag,
                                               std::int64_t num_stages,
                                               const std::function<std::set<StageId>()>& automatic);

}  // namespace chimera
