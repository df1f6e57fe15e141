#pragma once

// Decides when a run moves work away from slow ranks (--adapt all). Every rank measures the times of its ops. Every ten
// steps, their medians travel with the sum of the step's losses (StepHooks::shared), so that all ranks have the same
// table and decide alike, without a leader. Holders of a stage run equal ops, so their ratio gives a rank's factor
// without a model of the machine. A change must be predicted to pay for itself. It is a RunChange as after the loss of
// a rank: a lost rank is one of speed 0 (rerouted_run.h).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/rerouted_run.h"
#include "runtime/tracer.h"
#include "simulate/costs.h"

namespace chimera {

/// The times of all ranks. Each rank measures its own row.
class SharedTimes {
 public:
  static constexpr std::int64_t kSteps = 10;  // Between two tables, and in each median

  SharedTimes(std::int64_t ranks, std::int64_t stages);

  /// Adds a step. `total` has the times of all steps since the start of the executor or since forget().
  void note_step(const OpTimes& total, double seconds);
  /// Forgets the steps of this rank, after a change of its executor or of its ops.
  void forget();
  /// Sets how long the last change of the order took.
  void note_change(double seconds) { change_seconds_ = seconds; }

  /// Returns StepHooks::shared for this step (from 1) of the launched rank; empty in most steps.
  [[nodiscard]] std::span<double> numbers_of(std::int64_t step, RankId rank);

  /// Returns a time of the table: the median of a rank, 0 if it has none. `kind` is an OpKind, or kRecomputation.
  static constexpr std::size_t kRecomputation = kOpKinds;
  [[nodiscard]] double& op(std::size_t rank, std::size_t stage, std::size_t kind);
  /// Returns the median time of a step on this rank; 0 if it has too few steps.
  [[nodiscard]] double& step(std::size_t rank) { return table_[(rank + 1) * row_ - 2]; }
  [[nodiscard]] double& change(std::size_t rank) { return table_[(rank + 1) * row_ - 1]; }

 private:
  std::size_t stages_;
  std::size_t row_;            // Numbers of a rank
  std::vector<double> table_;  // [rank]: ops, step, change
  std::vector<double> total_;  // Of the steps so far, as in OpTimes
  std::deque<std::vector<double>> steps_;
  double change_seconds_ = 0;
};

/// Input of adapted_run().
struct AdaptationTask {
  const RunShape& launched;
  std::int64_t block_size = 1;  // As in rerouted_run()
  RunChange now;
  std::vector<double> factors;  // [launched rank]: new factors
  CostModel costs;              // Measured, with these factors
  double step_seconds = 0;      // Measured
  double change_seconds = 0;    // Of the last change
};

/// A change that pays.
struct AdaptedRun {
  RunChange change;
  std::string text;  // Clause that describes it
};

/// Returns the change of the order for these costs; empty if a step gets less than 5 % faster, or if the change takes
/// longer than it saves in 50 steps. Deterministic. It may take a while.
[[nodiscard]] std::optional<AdaptedRun> adapted_run(const AdaptationTask& task);

/// Reads tables and finds changed factors. Equal on all ranks.
class Adaptation {
 public:
  /// Borrows `launched`. `slices` is CostModel::slices.
  Adaptation(const RunShape& launched, std::int64_t block_size, SliceCosts slices = {})
      : launched_(launched), block_size_(block_size), slices_(std::move(slices)) {}

  /// Returns the task if the factors of two tables in a row agree and differ from those in use and from those of the
  /// last task. Differences below 15 % count as noise.
  [[nodiscard]] std::optional<AdaptationTask> consider(SharedTimes& table, const RunChange& now);
  /// Forgets earlier tables.
  void forget() {
    previous_.clear();
    considered_.clear();
  }

 private:
  const RunShape& launched_;
  std::int64_t block_size_;
  SliceCosts slices_;
  std::vector<double> previous_;    // [rank]: factors of the last table
  std::vector<double> considered_;  // [rank]: factors of the last task
};

}  // namespace chimera
