#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profile/layer_timer.h"
#include "profile/lockstep.h"
#include "train/setup/prepare_job.h"
#include "transport/threads/rank_threads.h"

// Compares training runs by alternating their steps in shared processes, and gauges the machine's speed around every
// turn. Changes of speed thus affect all runs alike.

namespace chimera {

struct GaugedBlocks {
  std::string model;
  std::int64_t micro_batch_size = 1;
  std::int64_t sequence = 128;
};

/// Measures the machine's speed by constant work on all cores.
class SpeedGauge {
 public:
  SpeedGauge(Lockstep& ranks, const std::vector<GaugedBlocks>& blocks);
  /// Returns wall-clock seconds, averaged over computing ranks. Collective.
  double seconds();
  [[nodiscard]] double seconds_on(const MachineProfile& machine) const;

 private:
  struct Item {
    LayerTimer bench;
    ModelConfig model;
    std::int64_t micro_batch_size;
    std::int64_t sequence;
  };
  Lockstep& ranks_;
  std::vector<Item> items_;
};

struct GaugedTime {
  double seconds = 0;
  double gauge = 1;
};

[[nodiscard]] double median_gauge(const std::vector<std::vector<GaugedTime>>& times);

/// Returns the profile with all times multiplied by `factor`.
[[nodiscard]] MachineProfile on_slower_processor(MachineProfile machine, double factor);

/// Returns [run][time], scaled to the median gauge.
[[nodiscard]] std::vector<std::vector<double>> at_median_speed(const std::vector<std::vector<GaugedTime>>& times);

struct ContestRun {
  TrainOptions options;
  bool share_memory = true;  // false: sums over sockets
  ContestRun(TrainOptions run, bool shares = true) : options(std::move(run)), share_memory(shares) {}
};

class StepContest {
 public:
  /// Collective with identical `runs`. The W D T processes of a run are the first of `ranks`; runs on threads are in
  /// rank 0. `folder` is the path prefix of rendezvous files. Throws exceptions of prepare_job() and the transports,
  /// and ConfigError if a run needs more than `world_size` ranks.
  StepContest(Lockstep& ranks, int world_size, SpeedGauge& gauge, const std::vector<ContestRun>& runs,
              const std::string& folder);
  ~StepContest();
  StepContest(const StepContest&) = delete;
  StepContest& operator=(const StepContest&) = delete;

  /// Returns the largest run's ranks, among runs on threads or among the others.
  [[nodiscard]] static int ranks_for(const std::vector<ContestRun>& runs, bool as_threads);

  /// Gives each run a turn, in changing order: a step to warm caches, then 1 to 9 steps within 0.2 s (1 in the first
  /// round). Adds their median to times()[run], valid on rank 0. Collective.
  void round();
  [[nodiscard]] const std::vector<std::vector<GaugedTime>>& times() const { return times_; }
  void forget() { times_.assign(entrants_.size(), {}); }

 private:
  class Entrant;
  class Processes;
  class Threads;

  Lockstep& ranks_;
  SpeedGauge& gauge_;
  std::unique_ptr<RankThreads> threads_;
  std::vector<std::unique_ptr<Entrant>> entrants_;  // [run]; null if this rank takes no part
  std::vector<std::size_t> order_;
  std::vector<std::size_t> steps_;              // [run]: timed steps per turn
  std::vector<std::vector<GaugedTime>> times_;  // [run][round]
  std::size_t rounds_ = 0;
};

}  // namespace chimera
