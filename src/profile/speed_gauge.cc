#include "profile/speed_gauge.h"

#include "bench/statistics.h"

namespace chimera {

SpeedGauge::SpeedGauge(Lockstep& ranks, const std::vector<GaugedBlocks>& blocks) : ranks_(ranks) {
  for (const GaugedBlocks& each : blocks) {
    BenchedLayers layers;
    layers.model = find_model(each.model);
    items_.push_back({StageBench(layers), each.micro_batch_size});
  }
}

double SpeedGauge::seconds() {
  ranks_.meet();
  const double start = monotonic_seconds();
  if (ranks_.computes()) {
    for (Item& item : items_) (void)item.bench.run(item.micro_batch_size, /*threads=*/1);
  }
  double seconds = monotonic_seconds() - start;
  ranks_.average({&seconds, 1});
  return seconds;
}

std::vector<std::vector<double>> at_median_speed(const std::vector<std::vector<GaugedTime>>& times) {
  std::vector<double> gauges;
  for (const auto& run : times) {
    for (const GaugedTime& time : run) gauges.push_back(time.gauge);
  }
  const double usual = spread_of(gauges).median;
  std::vector<std::vector<double>> scaled;
  for (const auto& run : times) {
    auto& seconds = scaled.emplace_back();
    for (const GaugedTime& time : run) seconds.push_back(time.seconds * usual / time.gauge);
  }
  return scaled;
}

}  // namespace chimera
