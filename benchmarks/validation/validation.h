#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/choices.h"
#include "model_config/config.h"
#include "plan/machine.h"

// Compares predictions from a machine profile with a grid of training runs.

namespace chimera {

inline constexpr std::int64_t kUsualSequence = 128;

struct GridRun {
  std::string model = {};
  std::int64_t micro_batch_size = 1;
  std::string schedule = {};
  std::int64_t stages = 2;
  std::int64_t micro_batches = 2;
  bool recomputes = false;
  TransportKind transport = TransportKind::Processes;
  std::int64_t data_parallel = 1;
  std::int64_t sequence = kUsualSequence;
  std::int64_t vocabulary = 0;  // 0: vocabulary of the model
  std::int64_t tensor_parallel = 1;
  bool sockets = false;  // whether processes all-reduce over sockets instead of shared memory
};

/// Returns the changes of the run's model: its vocabulary, and heads that T divides.
[[nodiscard]] ModelOverrides overrides_of(const GridRun& run);
[[nodiscard]] ModelConfig model_of(const GridRun& run);

/// Returns the grid (docs/planner.md).
[[nodiscard]] std::vector<GridRun> validation_grid();

/// Returns, for example, `gpt2-mini b 2, chimera D 4 N 8, recompute, threads`.
[[nodiscard]] std::string describe(const GridRun& run);

/// Returns the flags of `chimera train`, except --data and --steps.
[[nodiscard]] std::vector<std::string> training_flags(const GridRun& run);

struct Validated {
  GridRun run;
  double predicted_seconds = 0;
  std::vector<double> seconds = {};  // measured seconds per step, at least two values
  double predicted_bytes = 0;        // largest predicted peak of tensor bytes over the workers
  double bytes = 0;
  double resident_bytes = 0;  // peak of the largest process, including LibTorch

  [[nodiscard]] double time_error() const;    // predicted over median measured time, minus 1
  [[nodiscard]] double memory_error() const;  // predicted over measured bytes, minus 1
  /// Returns the noise of repeated measurements: the ratio of the medians of even and odd values, larger over smaller,
  /// minus 1.
  [[nodiscard]] double spread() const;
};

/// Runs and the profiles of their predictions.
struct Validation {
  std::vector<Validated> runs = {};
  std::string measured_on = {};  // machine_line() of the measurement
  MachineProfile machine = {};
  MachineProfile on_sockets = {};  // profile for all-reduces over sockets
};

/// Medians and maxima over runs, of absolute errors.
struct ValidationSummary {
  double median_time_error = 0;
  double worst_time_error = 0;
  double median_memory_error = 0;
  double worst_memory_error = 0;
  double median_spread = 0;
};
[[nodiscard]] ValidationSummary summarize(const std::vector<Validated>& runs);

/// Return the results as tables of runs and of kinds of runs, or as JSON with the profiles.
[[nodiscard]] std::string to_text(const Validation& validation);
[[nodiscard]] std::string to_json(const Validation& validation);

struct ValidationOptions {
  std::string program = {};
  std::string machine = {};  // path of a profile; empty: use profiles measured between the runs
  std::string data = {};
  std::string only = {};  // run only runs whose describe() contains this text; empty: all
};

struct GridTimes {
  std::vector<std::vector<double>> seconds;     // [run][round]: seconds per step, scaled to the machine's median speed
  std::vector<MachineProfile> machines;         // measured between rounds, at that speed; may be empty
  std::vector<MachineProfile> on_sockets = {};  // like `machines`, with all-reduces over sockets; may be empty
};
using MeasureGrid = std::function<GridTimes(const std::vector<GridRun>&)>;

struct RunPrediction {
  double step_seconds = 0;
  double peak_bytes = 0;
};
using PredictRun = std::function<RunPrediction(const MachineProfile&, const GridRun&)>;

/// Returns the runs of the grid whose describe() contains `only`. Throws ConfigError if there is none.
[[nodiscard]] std::vector<GridRun> chosen_runs(const std::string& only);

/// Measures the chosen runs, trains each run again to count tensor bytes, and predicts all runs. Calls `say` after each
/// run. Throws the exceptions of chosen_runs(), `measure` and `predict`, and Error if a run fails.
[[nodiscard]] Validation run_validation(const ValidationOptions& options, const MeasureGrid& measure,
                                        const PredictRun& predict, const std::function<void(const std::string&)>& say);

/// Predicts the runs of to_json() again, with its profiles. Throws ConfigError, naming `source`, for other texts.
[[nodiscard]] Validation predict_again(const std::string& text, const std::string& source, const PredictRun& predict);

[[nodiscard]] RunPrediction predict_run(const MachineProfile& machine, const GridRun& run);

}  // namespace chimera
