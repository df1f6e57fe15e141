#pragma once

// The input of the search: a SearchProblem, and the same problem as an Instance (generate/list_orders.h), in which ops,
// stages and workers are indices of arrays, for the speed of the algorithms.
//
// A chain is a stage of a replica, and a queue the ops of one kind of a chain. The search runs the micro-batches of
// each queue in ascending order, so the order of a worker's ops is a list of queues; each entry means the next op of
// its queue.
//
// Ascending order excludes no makespan: any schedule can be renumbered, queue by queue, so that the k-th op that starts
// in each queue is the op of micro-batch k. Suppose that the ops of queue Y need those of queue X, and start at least d
// (duration plus delay) after them. Before the k-th start in Y, k ops of X have started, each at least d earlier. So
// the k-th start in X is also at least d earlier: the renumbered ops meet their dependencies at the same times, and as
// many micro-batches are in flight.
//
// If micro-batches run in k slices, the first i + 1 backwards of a queue belong to at least floor(i / k) + 1
// micro-batches, so the argument above still holds if all slices take equal times. If they do not, all count as the
// shortest, which keeps lower bounds valid. In the same way, lower bounds count each micro-batch as the one with least
// work (CostModel::micro_batches), but orders are timed with the work of each.

#include "generate/list_orders.h"
#include "search/layout.h"
#include "simulate/costs.h"

namespace chimera {

/// Limit on the memory of micro-batches in flight: from the start of the forward to the end of the weight gradient (B
/// or W). limit_in_flight() counts in stage units, for --max-in-flight; limit_memory() counts in bytes, for --memory. A
/// stage unit is the activations of one full micro-batch on all stages that a replica places on a worker. With S stages
/// on D workers, one stage has D/S units.
struct InFlightLimit {
  std::string flag;                    // name of the limit in messages
  std::vector<double> size_of_stage;   // [stage]: memory of a micro-batch in flight; its slices take equal parts
  std::vector<double> room_of_worker;  // [worker]: memory for micro-batches in flight, in the same unit
};

/// Returns the size of a stage in stage units, D/S.
[[nodiscard]] double units_of_stage(const SearchLayout& layout);

/// Returns the size of a slice of a stage in stage units.
[[nodiscard]] double units_of_slice(const SearchLayout& layout);

/// Returns the limit of `units` stage units in flight per worker. Messages name it `flag`.
[[nodiscard]] InFlightLimit limit_in_flight(const SearchLayout& layout, double units, const std::string& flag);

/// Returns the limit of `bytes` per worker. The stages that one replica places on a worker have `weight_bytes` (with
/// gradients and optimizer state) and `activation_bytes` per micro-batch in flight. Message buffers do not count.
[[nodiscard]] InFlightLimit limit_memory(const SearchLayout& layout, double bytes, double weight_bytes,
                                         double activation_bytes, const std::string& flag);

/// Returns the limit of `bytes` per worker for stages with the sizes in `costs.memory`, which must be set. With
/// recomputation, a micro-batch in flight holds only the stage's input, and each worker reserves room for the other
/// activations of one op. With several slices, a slice also holds keys and values, and counts as the longest slice.
[[nodiscard]] InFlightLimit limit_memory(const SearchLayout& layout, double bytes, const CostModel& costs,
                                         const std::string& flag);

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

/// A limit that a single micro-batch exceeds, so that no order of ops keeps it. Points into the problem.
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

/// Returns the instance of a problem. It ignores contention of links, all-reduces and updates. Throws ConfigError if a
/// cost is invalid (CostTable).
[[nodiscard]] Instance make_instance(const SearchProblem& problem);

/// Returns the schedule of these orders. Requires that no queue occurs more often than it has ops.
[[nodiscard]] Schedule to_schedule(const SearchProblem& problem, const Orders& orders);

/// Returns a schedule's orders; placement and micro-batches per replica must match. If the problem splits backwards, B
/// becomes I and W in sequence; otherwise I and W become B at the place of I.
[[nodiscard]] Orders to_orders(const SearchProblem& problem, const Schedule& schedule);

/// Returns the mean duration of all ops, in the unit of the costs.
[[nodiscard]] double mean_duration(const Instance& instance);

/// Returns the peak memory of the slices in flight on a worker that runs the queues in `order`, in the unit of `size`.
/// A slice in flight at a chain takes `size[chain]`.
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
