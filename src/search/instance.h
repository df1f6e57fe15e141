#pragma once

// The input of the search: a SearchProblem, and the same problem as an Instance, in which ops, stages and workers are
// indices of arrays, for the speed of the algorithms.
//
// A *chain* is a stage of a replica, on its worker. A *queue* has the ops of one kind of a chain: forwards (F),
// backwards (B; or input gradients I if backwards are split), and weight gradients (W). The micro-batches of a queue
// run in ascending order. So the order of a worker's ops is a list of queues: each element means the next op of this
// queue. If stages 0 and 1 are on one worker, the list (F of stage 0, F of stage 0, F of stage 1, B of stage 1) means
// 0F0 0F1 1F0 1B0, each with stage, kind and micro-batch.
//
// Ascending order excludes no makespan: any schedule can be renumbered, queue by queue, so that the k-th op that starts
// in each queue is the op of micro-batch k. Suppose that the ops of queue Y need those of queue X, and start at least d
// (duration plus delay) after them. Before the k-th start in Y, k ops of X have started, each at least d earlier. So
// the k-th start in X is also at least d earlier: the renumbered ops meet their dependencies at the same times, and as
// many micro-batches are in flight.
//
// If micro-batches run in k slices, the ops of a queue are slices, micro-batch by micro-batch: in order for forwards,
// in reverse order for backwards. Backward i of a chain (from 0) needs the first (floor(i / k) + 1) k forwards: all
// slices of its micro-batch and of earlier ones. The first i + 1 backwards belong to at least floor(i / k) + 1
// micro-batches, so the argument above still holds if all slices take equal times. If they do not, all count as the
// shortest, which keeps lower bounds valid. In the same way, lower bounds count each micro-batch as the one with least
// work (CostModel::micro_batches), but orders are timed with the work of each.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "simulate/costs.h"

namespace chimera {

/// Limit on the memory of micro-batches in flight: from the start of the forward to the end of the weight gradient (B
/// or W). limits.h makes it.
struct InFlightLimit {
  std::string flag;                    // name of the limit in messages
  std::vector<double> size_of_stage;   // [stage]: memory of a micro-batch in flight; its slices take equal parts
  std::vector<double> room_of_worker;  // [worker]: memory for micro-batches in flight, in the same unit
};

/// What search() solves: it orders the ops of a layout.
struct SearchProblem {
  SearchLayout layout;  // placement and micro-batches of each replica
  CostModel costs;
  bool split_backward = true;  // I and W instead of B
  std::vector<InFlightLimit> limits;
};

/// Returns whether all workers and their links are equal, so that workers are interchangeable.
[[nodiscard]] inline bool workers_are_alike(const SearchProblem& problem) {
  return problem.costs.workers.empty() && (!problem.costs.links || !problem.costs.links->matrix);
}

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
  std::int32_t first = 0;  // index of its first op
  // Queue on which this one depends: its k-th op ends `delay` or more before this queue's k-th op starts
  QueueIndex input = kNoQueue;
  QueueIndex output = kNoQueue;  // queue whose input is this queue
  double delay = 0;              // time of the message from `input`; 0 on the same worker
  double duration = 0;           // of each op; the least, if Instance::durations is set
  bool takes = false;            // its ops allocate memory at their start
  bool releases = false;         // its ops free memory at their end
};

/// A search problem in arrays.
struct Instance {
  std::int32_t workers = 0;
  std::int32_t ops = 0;
  std::int32_t slices = 1;  // k; a micro-batch has k ops in a queue
  bool split_backward = true;
  std::vector<OpQueue> queues;                    // [3 * chain + step]; chain = replica * stages + stage
  std::vector<double> durations = {};             // [op], if the work of micro-batches differs; else empty
  std::vector<std::vector<std::int32_t>> chains;  // [worker]: its chains
  std::vector<std::int32_t> replica;              // [chain]: its replica
  std::vector<std::vector<double>> size;          // [limit][chain]: memory of a slice in flight
  std::vector<std::vector<double>> room;          // [limit][worker]: memory for slices in flight

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

/// Tolerance for rounding errors.
inline constexpr double kRounding = 1e-9;

/// A limit that a single micro-batch exceeds, so that no order of ops keeps it.
struct Shortage {
  const InFlightLimit* limit = nullptr;
  std::size_t worker = 0;
  std::size_t replica = 0;
  double needed = 0;  // memory of a micro-batch of the replica on the worker
};

/// Returns the first shortage, or nothing if all micro-batches can run one at a time.
[[nodiscard]] std::optional<Shortage> find_shortage(const SearchProblem& problem);

/// Throws ConfigError, naming worker and micro-batch, if there is a shortage.
void require_room(const SearchProblem& problem);

/// Returns the instance of a problem. It ignores contention of links, all-reduces and updates. Throws ConfigError as
/// CostTable does.
[[nodiscard]] Instance make_instance(const SearchProblem& problem);

/// Returns the schedule of these orders. Requires that no queue occurs more often than it has ops.
[[nodiscard]] Schedule to_schedule(const SearchProblem& problem, const Orders& orders);

/// Returns a schedule's orders; placement and micro-batches per replica must match. If the problem splits backwards, B
/// becomes I and W in sequence; otherwise I and W become B at the place of I.
[[nodiscard]] Orders to_orders(const SearchProblem& problem, const Schedule& schedule);

/// Returns the mean duration of an op.
[[nodiscard]] double mean_duration(const Instance& instance);

/// Returns a worker's peak memory if a slice in flight at a chain takes `size[chain]`.
[[nodiscard]] double peak_of(const Instance& instance, const std::vector<double>& size,
                             const std::vector<QueueIndex>& order);

/// Returns whether orders are complete and keep all limits, and the ops of each chain are in order: an F comes before
/// its B or I, and an I before its W.
[[nodiscard]] bool is_admissible(const Instance& instance, const Orders& orders);

/// Returns all queues in topological order: each after its inputs.
[[nodiscard]] std::vector<std::size_t> queues_in_order(const Instance& instance);

/// Returns how many slices of the chain the limits allow in flight if its worker had no other chain; at least 1.
[[nodiscard]] std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain);

/// Returns how many slices the limits allow in flight on the worker if each took the smallest size of its chains.
[[nodiscard]] std::int64_t most_in_flight(const Instance& instance, std::size_t worker);

}  // namespace chimera
