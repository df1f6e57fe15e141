#pragma once

// Decides when a run gives ops of slow ranks to other ranks, or orders its ops for slow links (--adapt all). Every rank
// measures the times of its ops and how long messages are under way. Every ten steps, their medians travel with the sum
// of the step's losses (StepHooks::shared), so that all ranks have the same table and decide alike, without a leader.
// The ranks that hold a stage run equal ops, so the ratio of their times is a rank's *factor* (2: its ops take twice as
// long). A change must be predicted to pay for itself. It is a RunChange (rerouted_run.h), as after the loss of a rank.

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

/// The times of all ranks in seconds. Each rank measures its own row of the table. Not thread-safe.
class SharedTimes {
 public:
  static constexpr std::int64_t kSteps = 10;  // Steps between two tables, and in each median

  SharedTimes(std::int64_t ranks, std::int64_t stages);

  /// Adds a step of this rank that took `seconds`. `total` has the times of all steps since the start of the executor
  /// or since forget(). `links` has the times of the messages of the step, by sender.
  void note_step(const OpTimes& total, double seconds, const TransitTimes& links = {});
  /// Forgets the steps of this rank, after a change of its executor or of its ops.
  void forget();
  /// Sets how long this rank paused for the last change of the order of ops.
  void note_change(double seconds) { change_seconds_ = seconds; }

  /// Returns the numbers that the step (from 1) sums over all ranks (StepHooks::shared). `rank` is this rank's number
  /// at the launch. In every kSteps-th step, this is the whole table with only the row of `rank` filled in, so that the
  /// sum completes it. Empty in all other steps.
  [[nodiscard]] std::span<double> numbers_of(std::int64_t step, RankId rank);

  // The functions below return elements of the table. They are 0 if the rank has no such time, or fewer than 4 steps.
  static constexpr std::size_t kRecomputation = kOpKinds;  // After the values of OpKind
  /// Returns the time of an op on a stage: the median over steps of its mean in a step. `kind` is an OpKind, or
  /// kRecomputation.
  [[nodiscard]] double& op(std::size_t rank, std::size_t stage, std::size_t kind);
  /// Returns the median over steps of the shortest time of a message from `sender` to `rank`: over the messages that
  /// the receiver waited for or, if `is_waited` is false, over all (TransitTime in runtime/tracer.h).
  [[nodiscard]] double& link(std::size_t rank, std::size_t sender, bool is_waited) {
    return table_[rank * row_ + row_ - 2 - 2 * (sender + 1) + (is_waited ? 0 : 1)];
  }
  /// Returns the median time of a step.
  [[nodiscard]] double& step(std::size_t rank) { return table_[(rank + 1) * row_ - 2]; }
  /// Returns the time of note_change().
  [[nodiscard]] double& change(std::size_t rank) { return table_[(rank + 1) * row_ - 1]; }

 private:
  std::size_t stages_;
  std::size_t row_;            // Numbers of a rank
  std::vector<double> table_;  // [rank]: ops, links, step, change
  std::vector<double> total_;  // Of the steps so far, as in OpTimes
  std::deque<std::vector<double>> steps_;
  double change_seconds_ = 0;
};

/// Input of adapted_run(). Borrows `launched`. Ranks have their numbers at the launch.
struct AdaptationTask {
  const RunShape& launched;
  std::int64_t block_size = 1;         // Micro-batches per block of --reduction canonical, else 1
  RunChange now;                       // The change that is in use
  std::vector<double> factors;         // [launched rank]: new factors
  std::vector<LinkDelay> delays = {};  // New delays of launched ranks
  CostModel costs;                     // Measured, with these factors and delays
  double step_seconds = 0;             // Measured median, on the slowest rank
  double change_seconds = 0;           // Pause for the last change, on the slowest rank; 0.3 before the first
};

/// A change that pays.
struct AdaptedRun {
  RunChange change;
  std::string text;  // Describes it in a line, with the predicted step times (StepMetrics::order)
};

/// Returns the change with a schedule for these costs; empty if a step gets less than 5 % faster, or if the change
/// takes longer than it saves in 50 steps. `room` limits the activations of a worker, as a multiple of the peak of the
/// first order found (FollowTask in search/follow.h). Deterministic. It may take seconds.
[[nodiscard]] std::optional<AdaptedRun> adapted_run(const AdaptationTask& task, double room = 1.25);

/// Reads tables and finds changed factors and delays. All ranks read the same tables and get the same results.
class Adaptation {
 public:
  /// Borrows `launched`. `slices` says how the slices of a micro-batch divide an op's time (CostModel::slices).
  Adaptation(const RunShape& launched, std::int64_t block_size, SliceCosts slices = {})
      : launched_(launched), block_size_(block_size), slices_(std::move(slices)) {}

  /// Reads the complete table of a step. Returns a task if the factors or delays of two tables in a row agree and
  /// differ from those in use and from those of the last task. Differences below 15 % count as noise, and so do
  /// differences of delays below half a forward or 2 ms.
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
  std::vector<double> previous_;    // Speeds of the last table: [rank] factors, then [rank][rank] delays
  std::vector<double> considered_;  // Speeds of the last task
};

}  // namespace chimera
