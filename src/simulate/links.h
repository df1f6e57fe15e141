#pragma once

// Simulates links between workers, if all speeds are constant. A link carries one message at a time, in order, so the
// time of arrival is known when a message is sent. The event loop in simulate.cc calls send(). If computation and
// messages slow each other down, shared_cores.cc has queues instead, because speeds then change while a message is in
// transit.

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include "schedule/op.h"
#include "simulate/cost_table.h"

namespace chimera {

/// Times at which a message leaves its sender and arrives.
struct Transfer {
  double sent = 0;
  double arrived = 0;
};

/// Links between all ordered pairs of workers. Each carries its messages in the order of the calls of send(), which
/// must follow the order of each worker's ops. Borrows the costs.
class Links {
 public:
  explicit Links(const CostTable& costs) : costs_(costs) {}

  /// Sends the result of op `made`, which is ready at time `ready`, from worker `from` to worker `to`. The message
  /// keeps the link busy for CostTable::link_time(), after earlier messages, and arrives CostTable::delay() later. A
  /// link that was idle is a full token bucket: up to CostTable::burst() of the time on the link is saved. Requires
  /// from != to.
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
