#pragma once
// Runs the validation grid with the built program.

#include <functional>
#include <string>
#include <vector>

#include "bench/contest.h"
#include "plan/machine.h"
#include "profile/validation.h"

namespace chimera {

struct ValidationOptions {
  std::string program = {};  // that trains and profiles
  std::string machine = {};  // a profile; empty: measured before and after the runs, and merged
  std::string data = {};     // a text; empty: random letters
  std::string only = {};     // runs whose words contain this text; empty: all
  std::int64_t steps = 7;
  ContestOptions contest = {.rounds = 2, .skipped = 2, .retries = 60};
};

/// What the planner says of a run: seconds of a step, bytes of tensors on the worker with most.
struct RunPrediction {
  double step_seconds = 0;
  double peak_bytes = 0;
};
using PredictRun = std::function<RunPrediction(const MachineProfile&, const GridRun&)>;

/// Trains every run of the grid in rounds that take turns, then each once more to count its tensors, and predicts all
/// of them. A run that others disturbed in every try is left out. `say` gets a few words after every run. Throws
/// ConfigError where no run contains `only`, Error where one fails.
[[nodiscard]] std::vector<Validated> validate(const ValidationOptions& options, const PredictRun& predict,
                                              const std::function<void(const std::string&)>& say);

/// That of the planner: Predictor, for the run as a candidate.
[[nodiscard]] RunPrediction predict_run(const MachineProfile& machine, const GridRun& run);

}  // namespace chimera
