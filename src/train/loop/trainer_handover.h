#pragma once

// Hands the training of a rank over from one Trainer to the next, in a job that continues after the loss of ranks
// (--recover twin or reroute), or that changes the order of its ops if ranks are slow (--adapt all). run.cc makes a
// TrainerHandover instead of a Trainer on each rank of such a job.

#include <future>

#include "engine/adaptation.h"
#include "train/loop/run_outputs.h"
#include "train/observe/measured_step.h"
#include "train/observe/step_costs.h"
#include "train/recover/reconnecting_transport.h"
#include "train/setup/job_identity.h"
#include "train/setup/rerouted_job.h"

namespace chimera {

/// The trainer of a rank in a job that continues after the loss of ranks. A loss without a replacement, and the return
/// of a rank, change the job (rerouted_job.h): the trainer ends, and the next one continues with its state. After the
/// first step of the changed job, it may change once more: other ranks get copies of the stages of lost ranks, if this
/// makes steps faster.
class TrainerHandover {
 public:
  /// `rank` is this rank's number at the launch. run() makes each Trainer in `trainer`. Borrows everything else.
  TrainerHandover(const Job& launched, RankId rank, ReconnectingTransport& reconnecting,
                  std::optional<Trainer>& trainer, RunOutputs& outputs)
      : launched_(launched),
        rank_(rank),
        reconnecting_(reconnecting),
        trainer_(trainer),
        outputs_(outputs),
        fingerprint_(fingerprint(launched)),
        adaptation_(launched.run, block_size_of(launched), slice_costs(launched)) {
    if (launched.options.schedule.adapt == Adapt::All)
      times_.emplace(launched.num_ranks(), launched.run.schedule.stages);
  }

  /// Trains all steps, and writes their outputs. Sets `is_saved` to whether the newest checkpoint has the last step;
  /// true if the job saves none. Then calls `on_whole` (which exports the model), but not after a stop request. If a
  /// rank is lost during this call, repeats it. Throws the trainer's errors unless a rank loss caused them.
  RunSummary run(bool& is_saved, const std::function<void()>& on_whole);

  /// Returns this rank's step times before and after each change, for the end of the run.
  [[nodiscard]] const StepCosts& costs() const { return costs_; }

 private:
  /// A search for a faster order of ops, on a thread of its own while steps run.
  struct Search {
    std::int64_t end = 0;  // Step (from 1) after which all ranks take its result
    std::future<std::pair<AdaptedRun, std::unique_ptr<const Job>>> found;  // The job is null: no change pays
  };
  RunSummary train();
  /// Reads the times of all ranks, and begins or ends a search.
  void adapt();
  /// Waits for the launcher's order to join, changes the job if ranks were lost or are back, and connects.
  void join();
  /// Prepares outputs, measurements and traces for the steps of the current job.
  void begin();
  /// Returns the change with copies of the lost ranks' stages on other ranks, if steps then take less time, and without
  /// copies that are no longer needed. Rank 0 decides, because the search may take long.
  RunChange agree_on_copies();
  /// Connects to the other ranks, and continues with the state of the job before.
  void connect();
  /// Continues in another job after a step that all ranks have completed. `job` is the job of `change`; null: makes it.
  void exchange(RunChange change, std::unique_ptr<const Job> job = nullptr);
  void change_job(RunChange change, std::unique_ptr<const Job> job = nullptr);
  [[nodiscard]] const Job& job() const { return rerouted_ ? *rerouted_ : launched_; }

  const Job& launched_;
  RankId rank_;
  ReconnectingTransport& reconnecting_;
  std::optional<Trainer>& trainer_;
  RunOutputs& outputs_;
  Fingerprint fingerprint_;
  RunChange change_;
  std::optional<SharedTimes> times_;  // With --adapt all
  Adaptation adaptation_;
  std::optional<Search> search_;
  std::pair<std::int64_t, std::string> order_;  // StepMetrics::order, and its step; 0: none
  std::unique_ptr<const Job> rerouted_;         // Set if some ranks are lost, or have extra copies
  std::optional<Trainer::Kept> kept_;           // Between two trainers
  StepCosts costs_{launched_.num_ranks()};
  double left_at_ = 0;  // Time at which this rank left the unfinished step; 0: it runs
};

}  // namespace chimera
