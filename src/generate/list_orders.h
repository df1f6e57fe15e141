#pragma once
// List scheduling, for generators (list_schedule.h) and for the search (search/list_scheduling.h). It simulates a step
// op by op: of the ops that can start next, a worker runs the op with the smallest *rank*, a priority. Limits on
// activations hold back forwards: the *credits* of a chain (a stage of a replica), and the memory limits of the
// Instance (op_queues.h).

#include <functional>
#include <limits>

#include "generate/op_queues.h"

namespace chimera {

/// Priority of an op: the smaller `rank` runs first; ties: smaller `age` (for generators, the number of the op in its
/// queue), then the chain that comes first in Instance::chains.
struct AgedRank {
  double rank = std::numeric_limits<double>::infinity();
  std::int32_t age = 0;
  friend bool operator==(const AgedRank&, const AgedRank&) = default;
  friend bool operator<(const AgedRank& a, const AgedRank& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.age < b.age;
  }
};

/// Priorities and limits of list_orders().
struct ListPolicy {
  /// Returns the rank of op number `k` of a queue. `arrival` is the time at which its last input is there.
  std::function<AgedRank(QueueIndex queue, std::int32_t k, double arrival)> rank_of;
  // Random number that is added to the rank each time that the op is considered; empty: nothing
  std::function<double()> noise = nullptr;
  double unit = 1;      // Unit of `window` and `patience`, in the times of Instance
  double window = 0;    // Maximum time that a worker waits for an op of smaller rank
  double patience = 0;  // Weight of this wait in the rank, at least 0
  // [chain]: maximum number of slices in flight, at least one micro-batch; empty: no limit
  std::vector<std::int32_t> credits = {};
  // Maximum number of slices of a replica in flight, from the forward at stage 0 to the input gradient there
  std::int64_t admitted = std::numeric_limits<std::int64_t>::max();
  // Number of slices in flight on a worker at which its W get priority
  std::int64_t most_held = std::numeric_limits<std::int64_t>::max();
};

/// Orders of all workers.
struct ListedOrders {
  Orders orders;
  double makespan = 0;
};

/// Returns the orders of a list schedule within the memory limits of the workers. If ops of two workers can start at
/// the same time, the op with the smaller rank is scheduled first.
///
/// Requires limits with room for one micro-batch. Then all ops are scheduled, because each worker reserves memory for
/// its oldest unfinished micro-batch (smallest position in its replica, then smallest replica): as much as the largest
/// single micro-batch needs there. Other micro-batches get only the remaining memory.
[[nodiscard]] ListedOrders list_orders(const Instance& instance, const ListPolicy& policy);

/// Returns the most memory that a single micro-batch needs on the worker by limit `limit`, an index of Instance::size,
/// and the replica of this micro-batch.
[[nodiscard]] std::pair<double, std::int32_t> needed_by_one(const Instance& instance, std::size_t limit,
                                                            std::size_t worker);

/// Tolerance for rounding errors in times and memory.
inline constexpr double kRounding = 1e-9;

}  // namespace chimera
