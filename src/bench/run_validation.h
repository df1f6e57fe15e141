#pragma once
// Runs the validation grid with the built program.

#include <functional>
#include <string>
#include <vector>

#include "bench/validation.h"
#include "plan/machine.h"

namespace chimera {

struct ValidationOptions {
  std::string program = {};  // that trains
  std::string machine = {};  // a profile; empty: measured in turns with the runs
  std::string data = {};     // the text that all train on
  std::string only = {};     // runs whose words contain this text; empty: all
};

/// What was measured of the grid's runs.
struct GridTimes {
  std::vector<std::vector<double>> seconds;     // [run][round] of a step, at the machine's median speed
  std::vector<MachineProfile> machines;         // profiles taken between the rounds, if any, at that speed
  std::vector<MachineProfile> on_sockets = {};  // the same, with what sums over sockets take; perhaps none
};
using MeasureGrid = std::function<GridTimes(const std::vector<GridRun>&)>;

/// What the planner says of a run: seconds of a step, bytes of tensors on the worker with most.
struct RunPrediction {
  double step_seconds = 0;
  double peak_bytes = 0;
};
using PredictRun = std::function<RunPrediction(const MachineProfile&, const GridRun&)>;

/// The grid's runs whose words contain `only`. Throws ConfigError where there is none.
[[nodiscard]] std::vector<GridRun> chosen_runs(const std::string& only);

/// Measures the chosen runs, trains each once more to count its tensors, and predicts all of them. `say` gets a few
/// words after every one. Throws what chosen_runs(), `measure` and `predict` throw; Error where a run fails.
[[nodiscard]] std::vector<Validated> run_validation(const ValidationOptions& options, const MeasureGrid& measure,
                                                    const PredictRun& predict,
                                                    const std::function<void(const std::string&)>& say);

/// The planner's prediction (Predictor) for the run as a candidate.
[[nodiscard]] RunPrediction predict_run(const MachineProfile& machine, const GridRun& run);

}  // namespace chimera
