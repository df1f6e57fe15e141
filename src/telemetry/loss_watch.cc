#include "telemetry/loss_watch.h"

#include <algorithm>
#include <cmath>

namespace chimera {

double LossWatch::deviation() const { return std::max(std::sqrt(variance), kLeastDeviation * std::abs(mean)); }

double LossWatch::deviations_above(double loss) const {
  if (losses < kWarmUp || loss <= expected()) return 0;
  return (loss - expected()) / deviation();
}

void LossWatch::note(double loss) {
  const double above = loss - mean;
  if (losses > 0) {  // the first one has none before it
    const double weight = std::max(1 / static_cast<double>(losses), kDistanceWeight);
    const double difference = above - distance;
    distance += weight * difference;
    variance = (1 - weight) * (variance + weight * difference * difference);
  }
  ++losses;
  mean += std::max(1 / static_cast<double>(losses), kWeight) * above;
}

}  // namespace chimera
