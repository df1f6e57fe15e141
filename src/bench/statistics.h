#pragma once
// Repeated measurements in three numbers.

#include <algorithm>
#include <vector>

namespace chimera {

/// Median and quartiles: half of the repetitions lie between `low` and `high`.
struct Spread {
  double low = 0;
  double median = 0;
  double high = 0;
};

/// `values`: at least one.
[[nodiscard]] inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](std::size_t quarters) { return values[(values.size() - 1) * quarters / 4]; };
  return {at(1), at(2), at(3)};
}

}  // namespace chimera
