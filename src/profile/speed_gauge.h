#pragma once
// How fast the machine is at the moment.

#include <string>
#include <vector>

#include "profile/lockstep.h"
#include "profile/stage_bench.h"

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

}  // namespace chimera
