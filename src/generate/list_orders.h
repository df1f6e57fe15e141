#pragma once
// List scheduling, for generators (list_schedule.h) and for the search (search/list_scheduling.h). It simulates a step
// op by op: of the ops that can start next, a worker runs the op with the smallest *rank*, a priority. Limits on
// activations hold back forwards: the *credits* of a chain, and the memory limits of the Instance.
//
// The ops of a schedule are queues here, also for the search (search/instance.h).
//
// A *chain* is a stage of a replica, on its worker. A *queue* has the ops of one kind of a chain: forwards (F),
// backwards (B; or input gradients I if backwards are split), and weight gradients (W). The micro-batches of a queue
// run in ascending order. So the order of a worker's ops is a list of queues: each element means the next op of this
// queue. If stages 0 and 1 are on one worker, the list (F of stage 0, F of stage 0, F of stage 1, B of stage 1) means
// 0F0 0F1 1F0 1B0, each with stage, kind and micro-batch.
//
// If micro-batches run in k slices, the ops of a queue are slices, micro-batch by micro-batch: in order for forwards,
// in reverse order for backwards. Backward i of a chain (from 0) needs the first (floor(i / k) + 1) k forwards: all
// slices of its micro-batch and of earlier ones.

#include <functional>
#include <limits>

#include "schedule/schedule.h"

namespace chimera {

/// Index into Instance::queues.
using QueueIndex = std::int32_t;
inline constexpr QueueIndex kNoQueue = -1;
inline constexpr QueueIndex kQueuesOfChain = 3;

/// The queues of a chain: F; B or I; W.
enum QueueKind : std::int8_t { kForwardStep, kInputStep, kWeightStep };

/// A queue of ops of one kind and one chain.
struct OpQueue {
  std::int32_t worker = 0;
  std::int32_t count = 0;  // number of ops; 0 for W if backwards are whole
  std::int32_t first = 0;  // index of its first op in Instance::durations
  // Queue on which this one depends: its k-th op ends `delay` or more before this queue's k-th op starts
  QueueIndex input = kNoQueue;
  QueueIndex output = kNoQueue;  // queue whose input is this queue
  double delay = 0;              // time of the message from `input`; 0 on the same worker
  double duration = 0;           // of each op; the least, if Instance::durations is set
  bool takes = false;            // its ops allocate memory at their start
  bool releases = false;         // its ops free memory at their end
};

/// The queues of a schedule in arrays. Times may have any unit. Each limit on memory has a unit of its own, such as
/// bytes (InFlightLimit in search/instance.h).
struct Instance {
  std::int32_t workers = 0;
  std::int32_t ops = 0;
  std::int32_t slices = 1;  // k; a micro-batch has k ops in a queue
  bool split_backward = true;
  std::vector<OpQueue> queues = {};                    // [3 * chain + step]; chain = replica * stages + stage
  std::vector<double> durations = {};                  // [op], if the work of micro-batches differs; else empty
  std::vector<std::vector<std::int32_t>> chains = {};  // [worker]: its chains
  std::vector<std::int32_t> replica = {};              // [chain]: its replica
  std::vector<std::int32_t> stage = {};                // [chain]: its stage
  std::vector<std::vector<double>> size = {};          // [limit][chain]: memory of a slice in flight
  std::vector<std::vector<double>> room = {};          // [limit][worker]: memory for slices in flight

  [[nodiscard]] double duration(const OpQueue& queue, std::int32_t k) const {
    return durations.empty() ? queue.duration : durations[static_cast<std::size_t>(queue.first + k)];
  }
  /// Returns how many ops of the chain's previous queue must end before op `i` (from 0) of its queue `step` starts.
  [[nodiscard]] std::int32_t needed(std::size_t step, std::int32_t i) const {
    return slices == 1 || step != kInputStep ? i + 1 : (i / slices + 1) * slices;
  }
};

/// [worker]: the queues of its ops, in order.
using Orders = std::vector<std::vector<QueueIndex>>;

/// [replica]: its micro-batches, ascending.
using MicroBatches = std::vector<std::vector<MicroBatchId>>;

/// Fills in the queues, without durations, delays and limits, of an instance that has all fields before `queues` but
/// `ops`. `micro_batches` gives the numbers of ops.
void add_queues(Instance& instance, const Placement& placement, const MicroBatches& micro_batches);

/// Returns the kind of a queue's ops.
[[nodiscard]] OpKind kind_of(const Instance& instance, QueueIndex queue);

/// Returns the op number `k` of a queue.
[[nodiscard]] Op op_of(const Instance& instance, const MicroBatches& micro_batches, QueueIndex queue, std::int32_t k);

/// Appends the ops of these orders to the workers of the schedule. Requires that no queue occurs more often than it has
/// ops.
void append_ops(Schedule& schedule, const Instance& instance, const MicroBatches& micro_batches, const Orders& orders);

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
