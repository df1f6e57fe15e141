#pragma once

// Links on which messages do not slow each other down, so that a message's arrival is known when it is sent. With
// contention, messages wait in the queues of shared_cores.cc instead.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "schedule/op.h"
#include "simulate/costs.h"

namespace chimera {

/// Times at which a message leaves its sender and arrives.
struct Transfer {
  double sent = 0;
  double arrived = 0;
};

/// Links between all ordered pairs of workers. Each carries one message at a time, in the order of `send` calls, which
/// must follow each worker's op order.
class Links {
 public:
  explicit Links(const CostTable& costs) : costs_(costs) {}

  /// Sends the result of `made`, ready at `ready`. Requires from != to.
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
