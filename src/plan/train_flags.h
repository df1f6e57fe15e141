#pragma once

// Converts a candidate of the planner to flags of `chimera train`. The flags become a command line (to_words), a TOML
// file for `--config` (to_toml), or the fields that the playground (a web page, apps/playground.cc) shows.

#include <nlohmann/json.hpp>

#include "plan/candidate.h"

namespace chimera {

/// Flags by name, without dashes. The value is a text, a number, or `true` for a flag without a value.
using TrainFlags = nlohmann::ordered_json;

/// Returns the flags that run the candidate, without the flags of model, data and workload. The flag `recompute` lists
/// the candidate's stages or blocks; it is never `auto`.
[[nodiscard]] TrainFlags train_flags(const PlanProblem& problem, const Candidate& candidate);

/// Returns the value of a flag as on a command line; "true" for a flag without a value.
[[nodiscard]] std::string value_text(const TrainFlags& value);

/// Returns words of a command line: `--stages 4 --shard-optimizer`.
[[nodiscard]] std::vector<std::string> to_words(const TrainFlags& flags);

/// Returns TOML for `chimera train --config`. Each line of `comment` comes first, as a TOML comment.
[[nodiscard]] std::string to_toml(const TrainFlags& flags, const std::string& comment);

}  // namespace chimera
