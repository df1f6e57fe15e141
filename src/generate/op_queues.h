#pragma once
// The ops of a schedule as queues, for algorithms that order them: list scheduling (list_orders.h) and the search
// (search/instance.h).
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

}  // namespace chimera
