#pragma once

// Stages that recompute their activations (--recompute) or offload them to host memory (--offload). A StageChoice is
// the value of such a flag: a rule such as `full`, a list of stages, or numbers of blocks at levels of recomputation
// (`cheap:4+full:2`), which set_levels() writes into a partition. resolve_stages() converts it to stages of a
// schedule. For the rule `auto`, the stages depend on memory, so the caller passes a function that chooses them;
// usually the caller is choose_stages() (plan/worker_memory.h).

#include <set>

#include "core/choices.h"
#include "core/ids.h"
#include "model_config/partition.h"

namespace chimera {

/// Rule that selects stages.
enum class StageRule : std::uint8_t {
  None,       ///< no stages
  Cheap,      ///< no whole stages, but all blocks at RecomputeLevel::Cheap
  Attention,  ///< the same at RecomputeLevel::Attention
  Full,       ///< all stages
  Auto,       ///< as few stages as memory requires
  Listed,     ///< StageChoice::stages; on the command line a list such as 0,1
  Counted,    ///< StageChoice::counts; on the command line such as cheap:4+full:2,1, for --offload full:2,1
};
template <>
inline constexpr auto kNames<StageRule> = in_order<StageRule>("none", "cheap", "attention", "full", "auto");

/// Stages whose activations are recomputed, or offloaded.
struct StageChoice {
  StageRule rule = StageRule::None;
  std::set<StageId> stages = {};         // for Listed: at least one; else empty
  std::vector<BlockLevels> counts = {};  // for Counted: one element for all stages, or [stage]; else empty
  /// Whether the choice is about blocks instead of whole stages.
  [[nodiscard]] bool counts_blocks() const {
    return rule == StageRule::Cheap || rule == StageRule::Attention || rule == StageRule::Counted;
  }
  friend bool operator==(const StageChoice&, const StageChoice&) = default;
};

/// A flag or field whose value is a StageChoice.
struct StageFlag {
  std::string name;                // in messages
  std::vector<std::string> rules;  // names of the rules that it accepts
  bool moves = false;              // whether resolve_stages() also returns stages with counted blocks
};

inline const StageFlag kRecomputeFlag{.name = "--recompute", .rules = names_of<StageRule>()};
inline const StageFlag kOffloadFlag{.name = "--offload", .rules = {"none", "full", "auto"}, .moves = true};

/// Parses the name of a rule that the flag accepts, a list of stages such as `0,1,5`, or numbers of blocks at accepted
/// levels such as `full:3,2,0,0`. Throws ConfigError for other texts.
[[nodiscard]] StageChoice parse_stages(const StageFlag& flag, const std::string& text);

/// Returns text that parse_stages() reads back.
[[nodiscard]] std::string to_text(const StageChoice& choice);

/// Returns the shortest choice of these stages: `none`, `full` or a list.
[[nodiscard]] StageChoice stage_choice(const std::set<StageId>& stages, std::int64_t num_stages);

/// Sets the levels of the stages' blocks; to None if `choice` is about whole stages. If `choice` has one element for
/// all stages, a stage with fewer blocks uses all its blocks. Throws ConfigError if it has neither one element nor one
/// per stage, or an element for a single stage exceeds its blocks.
void set_levels(std::vector<StageLayers>& partition, const StageChoice& choice);

/// Sets which blocks of offloaded stages stay on the device: with counts, all but the first ones of each stage; else
/// none. Throws ConfigError as set_levels() does.
void set_on_device(std::vector<StageLayers>& partition, const StageChoice& offload);

/// Returns stages 0 to `count` - 1.
[[nodiscard]] std::set<StageId> all_stages(std::int64_t count);

/// Returns the stages that `choice` selects from the `num_stages` stages of a schedule. For a choice about blocks,
/// returns no stages or, with StageFlag::moves, the stages with counted blocks. Calls `automatic` for the rule Auto.
/// Throws ConfigError for a stage that does not exist, and for a rule that the flag does not accept: `--offload 4:
/// expected none, full, auto, or stages of 0 to 3 such as 0,1`.
[[nodiscard]] std::set<StageId> resolve_stages(const StageChoice& choice, const StageFlag& flag,
                                               std::int64_t num_stages,
                                               const std::function<std::set<StageId>()>& automatic);

}  // namespace chimera
