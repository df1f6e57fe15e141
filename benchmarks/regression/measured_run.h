#pragma once

#include <string>
#include <vector>

#include "plan/candidate.h"

namespace chimera {

/// A training run with a measured step time.
struct MeasuredRun {
  std::string figure = {};   // runs of a figure are left out together; may be empty
  PlanProblem problem = {};  // without a machine
  Candidate candidate = {};
  double step_seconds = 0;
};

/// Reads `[[runs]]` of TOML. Keys are flags of `chimera train` as `chimera plan --output` writes them, also `figure`,
/// and either `step-seconds` or `sequences-per-second`. A key at the top level applies to all runs that do not have it.
/// Throws ConfigError, with file and line, for unknown keys, wrong values and configurations that no schedule accepts.
[[nodiscard]] std::vector<MeasuredRun> measured_runs(const std::string& text, const std::string& path);

}  // namespace chimera
