#pragma once
// Messages on their links: who sends when, and when it arrives.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "schedule/op.h"
#include "simulate/costs.h"

namespace chimera {

/// When a message leaves its sender and when it has arrived.
struct Transfer {
  double sent = 0;
  double arrived = 0;
};

/// Every ordered pair of workers has a link that carries one message at a time, in the order of `send`. A sender's ops
/// end in order, so messages that are sent op by op of each worker leave in the order in which they become ready; the
/// order among different workers does not matter.
class Links {
 public:
  explicit Links(const CostTable& costs) : costs_(costs) {}

  /// The message with the result of `made`, which is ready at that time. Requires from != to.
  Transfer send(std::size_t from, std::size_t to, const Op& made, double ready) {
    const double link_time = costs_.link_time(made);
    if (link_time == 0) return {ready, ready + costs_.delay(made)};
    double& free = free_[(static_cast<std::uint64_t>(from) << 32) | to];
    const double burst = costs_.burst(made);
    const double sent = std::max(ready, free - burst);
    free = std::max(ready, free) + link_time;
    return {sent, std::max(sent, free - burst) + costs_.delay(made)};
  }

 private:
  const CostTable& costs_;
  std::unordered_map<std::uint64_t, double> free_;  // (from, to): when the link is free again
};

}  // namespace chimera
