#include "search/lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace chimera {
namespace {

constexpr std::int32_t kUnlimited = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::vector<std::size_t> lanes_in_order(const Instance& instance) {
  const std::size_t chains = instance.replica.size();
  std::vector<std::size_t> lanes;
  for (std::size_t c = 0; c < chains; ++c) lanes.push_back(kLanesOfChain * c + kForwardStep);
  for (std::size_t c = chains; c-- > 0;) lanes.push_back(kLanesOfChain * c + kInputStep);
  for (std::size_t c = 0; c < chains; ++c) lanes.push_back(kLanesOfChain * c + kWeightStep);
  return lanes;
}

std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain) {
  const auto worker = static_cast<std::size_t>(instance.lanes[kLanesOfChain * chain].worker);
  double most = kUnlimited;
  for (std::size_t limit = 0; limit < instance.size.size(); ++limit) {
    const double size = instance.size[limit][chain];
    if (size > 0) most = std::min(most, std::floor((instance.room[limit][worker] + kRounding) / size));
  }
  return static_cast<std::int32_t>(std::max(1.0, most));
}

std::int64_t most_in_flight(const Instance& instance, std::size_t worker) {
  double most = kUnlimited;
  for (std::size_t limit = 0; limit < instance.size.size(); ++limit) {
    double smallest = std::numeric_limits<double>::infinity();
    for (const std::int32_t chain : instance.chains[worker]) {
      smallest = std::min(smallest, instance.size[limit][static_cast<std::size_t>(chain)]);
    }
    if (smallest > 0) most = std::min(most, std::floor((instance.room[limit][worker] + kRounding) / smallest));
  }
  return static_cast<std::int64_t>(most);
}

}  // namespace chimera
