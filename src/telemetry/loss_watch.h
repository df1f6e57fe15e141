#pragma once
// The loss as it goes, for those who look for spikes: what the next one should be, and how far losses lie from that.

#include <cstdint>

namespace chimera {

/// An exponentially weighted mean of the losses lags behind a loss that falls, so that a spike would hide in what the
/// loss has fallen by. So it is the distances from the mean of the losses before whose mean and deviation count, both
/// weighted exponentially in their turn (variance: West, CACM 22(9), 1979, with a constant weight).
struct LossWatch {
  static constexpr double kWeight = 0.2;                ///< of a loss in the mean; the first ones count alike
  static constexpr double kDistanceWeight = 0.05;       ///< of a distance in their mean and variance, likewise
  static constexpr std::int64_t kWarmUp = 20;           ///< losses before any is looked at
  static constexpr double kLeastDeviation = 1.0 / 256;  ///< of the mean: losses that hardly differ say little

  double mean = 0;
  double distance = 0;  ///< mean of what losses lay above the mean before them
  double variance = 0;  ///< of that
  std::int64_t losses = 0;

  /// What the next loss should be.
  [[nodiscard]] double expected() const { return mean + distance; }
  [[nodiscard]] double deviation() const;
  /// By how many deviations a loss lies above the expected one; 0 until the warm-up is over, and where it is not above.
  [[nodiscard]] double deviations_above(double loss) const;
  void note(double loss);
};

}  // namespace chimera
