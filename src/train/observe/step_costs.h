#pragma once

// Step times of a run that loses ranks and continues without them (--recover reroute), or that changes the order of its
// ops (--adapt all). TrainerHandover (train/loop) fills them, and the end of the run compares them. Each rank keeps the
// times of all steps between two changes of the running ranks or of their stages, because any rank may print them at
// the end.

#include <string>

#include "engine/rerouted_run.h"

namespace chimera {

/// Step times of one rank, by set of running ranks.
class StepCosts {
 public:
  /// `ranks` is the number of launched ranks.
  explicit StepCosts(std::int64_t ranks) : ranks_(ranks) {}

  /// Call it when the rank begins or resumes its steps. `change` is what has changed since the launch, `step` (from 1)
  /// is the next step. `pause` is the time in seconds since this rank left its steps; 0 at the start. `order` says how
  /// the order of ops has changed before this step; empty: it has not. Does nothing if `change` is as in the last call.
  void begin(const RunChange& change, std::int64_t step, double pause, const std::string& order = {});
  /// Adds the time of `step` (from 1). A step that is repeated after a loss counts once, with its first time.
  void note_step(std::int64_t step, double seconds);

  /// Returns a line for each change since the first begin(): its pause, and the median step time since then. Empty if
  /// there was none.
  [[nodiscard]] std::string describe() const;

 private:
  /// Steps with the same ranks and stages.
  struct Stretch {
    RunChange change;
    std::int64_t step = 0;
    double pause = 0;
    std::string order;
    std::vector<double> seconds;
  };
  std::int64_t ranks_;
  std::int64_t last_step_ = 0;
  std::vector<Stretch> stretches_;
};

}  // namespace chimera
