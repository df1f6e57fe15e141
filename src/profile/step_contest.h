#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profile/lockstep.h"
#include "profile/stage_bench.h"
#include "train/setup/job.h"
#include "transport/threads/rank_threads.h"

// How fast the machine is at the moment.

// Training runs that take turns step by step, in processes that all of them share: a change of the machine's speed
// meets all alike, none pays for a start, and the speed is gauged around every step.

namespace chimera {

/// What the speed is gauged with: blocks of a model, on a micro-batch of that many sequences of that length.
struct GaugedBlocks {
  std::string model;
  std::int64_t micro_batch_size = 1;
  std::int64_t sequence = 128;
};

/// The same work again and again, on all cores at once.
class SpeedGauge {
 public:
  SpeedGauge(Lockstep& ranks, const std::vector<GaugedBlocks>& blocks);
  /// Seconds on the clock, the mean over the ranks that compute. All ranks call it at the same time.
  double seconds();
  /// What the profile says that it takes.
  [[nodiscard]] double seconds_on(const MachineProfile& machine) const;

 private:
  struct Item {
    StageBench bench;
    ModelConfig model;
    std::int64_t micro_batch_size;
    std::int64_t sequence;
  };
  Lockstep& ranks_;
  std::vector<Item> items_;
};

/// Something that was measured, and what the gauge showed around it.
struct GaugedTime {
  double seconds = 0;
  double gauge = 1;
};

/// The gauge's median over all times.
[[nodiscard]] double median_gauge(const std::vector<std::vector<GaugedTime>>& times);

/// The profile where the processor does everything `factor` times as slowly: layers, updates, messages, sums and
/// overheads.
[[nodiscard]] MachineProfile on_slower_processor(MachineProfile machine, double factor);

/// [run][time]: what each would have taken, had the machine always been as fast as in the median of all gauges.
[[nodiscard]] std::vector<std::vector<double>> at_median_speed(const std::vector<std::vector<GaugedTime>>& times);

/// A run that takes part.
struct ContestRun {
  TrainOptions options;
  bool share_memory = true;  // false: processes sum gradients over sockets
  ContestRun(TrainOptions run, bool shares = true) : options(std::move(run)), share_memory(shares) {}
};

class StepContest {
 public:
  /// All ranks construct it, with the same runs; run k's W D processes are the first of `ranks`, and what trains as
  /// threads does so in rank 0. `folder`: what the paths of files begin with that all ranks may make, to meet there.
  /// Throws what prepare_job() and the transports throw, ConfigError where `world_size` ranks are too few for a run.
  StepContest(Lockstep& ranks, int world_size, SpeedGauge& gauge, const std::vector<ContestRun>& runs,
              const std::string& folder);
  ~StepContest();
  StepContest(const StepContest&) = delete;
  StepContest& operator=(const StepContest&) = delete;

  /// Ranks that the largest of these runs needs, of those on threads or of the others.
  [[nodiscard]] static int ranks_for(const std::vector<ContestRun>& runs, bool as_threads);

  /// A turn of each run, in another order every time: a step that brings its memory back into caches, then as many as a
  /// fifth of a second has room for, from one to nine; in the first round one. All ranks call it. Adds the median of
  /// these by rank 0's clock to times()[run]; what others get means nothing.
  void round();
  [[nodiscard]] const std::vector<std::vector<GaugedTime>>& times() const { return times_; }
  /// Rounds before this do not count.
  void forget() { times_.assign(entrants_.size(), {}); }

 private:
  class Entrant;
  class Processes;
  class Threads;

  Lockstep& ranks_;
  SpeedGauge& gauge_;
  std::unique_ptr<RankThreads> threads_;
  std::vector<std::unique_ptr<Entrant>> entrants_;  // [run]; null where this rank takes no part
  std::vector<std::size_t> order_;
  std::vector<std::size_t> steps_;              // [run]: of a turn that count
  std::vector<std::vector<GaugedTime>> times_;  // [run][round]
  std::size_t rounds_ = 0;
};

}  // namespace chimera
