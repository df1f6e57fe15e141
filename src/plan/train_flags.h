#pragma once
// A candidate as `chimera train` takes it.

#include <string>
#include <variant>
#include <vector>

#include "plan/candidate.h"

namespace chimera {

/// A flag of `chimera train`, without its dashes, and its value; a truth is that of a flag that takes none.
struct TrainFlag {
  std::string name;
  std::variant<std::string, std::int64_t, bool> value;
};

/// The flags that make `chimera train` run the candidate; not those of model, data and workload. Every stage that the
/// plan does not recompute stays so.
[[nodiscard]] std::vector<TrainFlag> train_flags(const PlanProblem& problem, const Candidate& candidate);

/// The flags as words of a command line: `--stages 4 --shard-optimizer`.
[[nodiscard]] std::vector<std::string> to_words(const std::vector<TrainFlag>& flags);

/// The flags as TOML, one key a line, which `chimera train --config` reads; `comment` goes above, line by line.
[[nodiscard]] std::string to_toml(const std::vector<TrainFlag>& flags, const std::string& comment);

}  // namespace chimera
