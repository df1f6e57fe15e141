#pragma once

// Links between workers, for simulations in which all speeds are constant. A link carries one message at a time, in
// order, so a message's arrival time is known when it is sent. If computation and messages slow each other down, the
// simulator uses the queues of shared_cores.cc instead, because speeds then change while a message is on its way.

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

/// Links between all ordered pairs of workers. Each carries its messages in the order of the send() calls. Callers must
/// call send() in the op order of each worker.
class Links {
 public:
  explicit Links(const CostTable& costs) : costs_(costs) {}

  /// Sends the result of op `made`, which is ready at time `ready`. The link is then busy for CostTable::link_time().
  /// The message may leave up to CostTable::burst() before the link is free, and arrives CostTable::delay() after its
  /// time on the link. After an idle time, up to burst() of its time on the link is skipped, as in a token bucket.
  /// Requires from != to.
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
