#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/choices.h"
#include "model_config/config.h"
#include "plan/machine.h"

// How well predictions from a profile hold: a grid of training runs, predicted and measured.

// Runs the validation grid with the built program.

namespace chimera {

inline constexpr std::int64_t kUsualSequence = 128;

/// One training run of the grid.
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
  std::int64_t vocabulary = 0;  // 0: the model's own
  bool sockets = false;         // processes sum gradients over sockets, not in memory that they share
};

/// The run's model, with its vocabulary.
[[nodiscard]] ModelConfig model_of(const GridRun& run);

/// Four schedules (one of them with a split backward) on 2 and 4 workers with N = D and 2D, two shapes of models, with
/// and without recomputation, as processes and as threads: 96 runs, as threads recompute nothing. Then runs whose
/// sums dominate: two models with large vocabularies on short sequences, N = D, three ways to have copies of stages, in
/// shared memory and over sockets; and runs whose attention does: sequences of 1,024, all four schedules.
[[nodiscard]] std::vector<GridRun> validation_grid();

/// `gpt2-mini b 2, chimera D 4 N 8, recompute, threads`.
[[nodiscard]] std::string in_words(const GridRun& run);

/// The flags of `chimera train` for it, but for data and steps.
[[nodiscard]] std::vector<std::string> training_flags(const GridRun& run);

/// What a prediction says of a run, and what came of it.
struct Validated {
  GridRun run;
  double predicted_seconds = 0;
  std::vector<double> seconds = {};  // of a step, each time that the run was measured: two or more
  double predicted_bytes = 0;        // of tensors, on the worker with most
  double bytes = 0;
  double resident_bytes = 0;  // of the largest process, LibTorch itself included

  [[nodiscard]] double time_error() const;    // predicted over measured (the median), less 1
  [[nodiscard]] double memory_error() const;  // likewise
  /// The same run measured twice: the medians of every other time and of the rest, larger over smaller, less 1.
  [[nodiscard]] double spread() const;
};

/// Absolute errors over all runs.
struct ValidationSummary {
  double median_time_error = 0;
  double worst_time_error = 0;
  double median_memory_error = 0;
  double worst_memory_error = 0;
  double median_spread = 0;
};
[[nodiscard]] ValidationSummary summarise(const std::vector<Validated>& runs);

/// Table and summary, in Markdown. `machine`: a line on where and when it was measured.
[[nodiscard]] std::string to_text(const std::vector<Validated>& runs, const std::string& machine);
[[nodiscard]] std::string to_json(const std::vector<Validated>& runs, const std::string& machine);

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
