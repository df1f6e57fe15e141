#pragma once

// Converts a candidate of the planner to flags of `chimera train`. The flags become a command line (to_words), a TOML
// file for `--config` (to_toml), or the fields that the playground (a web page, apps/playground.cc) shows.

#include <variant>

#include "plan/candidate.h"

namespace chimera {

/// A flag without dashes and its value. A `bool` is a flag without a value: true: given, false: left out.
struct TrainFlag {
  std::string name;
  std::variant<std::string, std::int64_t, bool> value;
};

/// Returns the flags that run the candidate, without the flags of model, data and workload. The flag `recompute` lists
/// the candidate's stages or blocks; it is never `auto`.
[[nodiscard]] std::vector<TrainFlag> train_flags(const PlanProblem& problem, const Candidate& candidate);

/// Returns the value as on a command line; "true" or "false" for a flag without value.
[[nodiscard]] std::string value_text(const TrainFlag& flag);

/// Returns words of a command line, in which a false flag is left out: `--stages 4 --shard-optimizer`.
[[nodiscard]] std::vector<std::string> to_words(const std::vector<TrainFlag>& flags);

/// Returns TOML for `chimera train --config`. Each line of `comment` comes first, as a TOML comment.
[[nodiscard]] std::string to_toml(const std::vector<TrainFlag>& flags, const std::string& comment);

}  // namespace chimera
