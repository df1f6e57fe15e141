// make_instance() adds times and memory limits to the queues. to_schedule() and to_orders() translate between schedules
// and orders of queues. The functions behind them answer questions that several algorithms of the search ask.

#include "search/instance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reject.h"
#include "simulate/cost_table.h"

namespace chimera {
namespace {

/// Returns the queues of the problem without times and limits.
Instance queues_of(const SearchProblem& problem) {
  Instance instance{.workers = static_cast<std::int32_t>(problem.layout.workers),
                    .slices = static_cast<std::int32_t>(problem.layout.slices),
                    .split_backward = problem.split_backward};
  add_queues(instance, problem.layout.placement, problem.layout.micro_batches);
  return instance;
}

void add_limits(Instance& instance, const SearchProblem& problem) {
  for (const InFlightLimit& limit : problem.limits) {
    auto& sizes = instance.size.emplace_back();
    for (const std::int32_t stage : instance.stage)
      sizes.push_back(limit.size_of_stage[static_cast<std::size_t>(stage)] / instance.slices);
    instance.room.push_back(limit.room_of_worker);
  }
}

/// Returns an op of the queue, without a micro-batch.
Op any_op_of(const Instance& instance, std::size_t queue) {
  const std::size_t chain = queue / kQueuesOfChain;
  return {kind_of(instance, static_cast<QueueIndex>(queue)), ReplicaId(instance.replica[chain]),
          StageId(instance.stage[chain]), MicroBatchId()};
}

// Slices may take different times, but the ops of a queue are interchangeable. The shortest slice keeps all bounds
// valid (see the header).
/// Returns the minimum of `of(op)` over the slices of a micro-batch's op.
template <class Of>
double least_of_slices(const SearchProblem& problem, Op op, MicroBatchId micro_batch, Of of) {
  double least = std::numeric_limits<double>::infinity();
  op.micro_batch = micro_batch;
  for (std::int64_t slice = 0; slice < problem.layout.slices; ++slice) {
    op.slice = static_cast<std::int16_t>(slice);
    least = std::min(least, of(op));
  }
  return least;
}

void add_durations(Instance& instance, const SearchProblem& problem, const CostTable& costs, std::size_t index) {
  OpQueue& queue = instance.queues[index];
  const auto duration = [&](MicroBatchId id) {
    return least_of_slices(problem, any_op_of(instance, index), id, [&](const Op& op) { return costs.duration(op); });
  };
  if (!costs.scale().has_unequal_work()) {
    queue.duration = duration({});
    return;
  }
  queue.duration = std::numeric_limits<double>::infinity();
  const auto& ids = problem.layout.micro_batches[static_cast<std::size_t>(instance.replica[index / kQueuesOfChain])];
  for (std::int32_t i = 0; i < instance.slices * std::ssize(ids); ++i) {
    const double each = duration(ids[static_cast<std::size_t>(i / instance.slices)]);
    queue.duration = std::min(queue.duration, each);
    if (i < queue.count) instance.durations.push_back(each);
  }
}

/// Returns how many slices of the chain that takes least memory fit on the worker.
std::int64_t most_of_smallest(const Instance& instance, std::size_t worker, const std::vector<std::int32_t>& chains) {
  // Without a limit that counts, as many as a counter can hold.
  double most = std::numeric_limits<std::int32_t>::max();
  for (std::size_t limit = 0; limit < instance.size.size(); ++limit) {
    double smallest = std::numeric_limits<double>::infinity();
    for (const std::int32_t chain : chains)
      smallest = std::min(smallest, instance.size[limit][static_cast<std::size_t>(chain)]);
    if (smallest > 0) most = std::min(most, std::floor((instance.room[limit][worker] + kRounding) / smallest));
  }
  return static_cast<std::int64_t>(most);
}

}  // namespace

double units_of_stage(const SearchLayout& layout) {
  return static_cast<double>(layout.workers) / static_cast<double>(layout.stages);
}

double units_of_slice(const SearchLayout& layout) {
  return units_of_stage(layout) / static_cast<double>(layout.slices);
}

InFlightLimit limit_in_flight(const SearchLayout& layout, double units, const std::string& flag) {
  return {flag, std::vector<double>(static_cast<std::size_t>(layout.stages), units_of_stage(layout)),
          std::vector<double>(static_cast<std::size_t>(layout.workers), units)};
}

InFlightLimit limit_memory(const SearchLayout& layout, double bytes, double weight_bytes, double activation_bytes,
                           const std::string& flag) {
  const double unit = units_of_stage(layout);
  CostModel costs;
  costs.memory.assign(static_cast<std::size_t>(layout.stages),
                      {.weights = weight_bytes * unit, .activations = activation_bytes * unit});
  return limit_memory(layout, bytes, costs, flag);
}

InFlightLimit limit_memory(const SearchLayout& layout, double bytes, const CostModel& costs, const std::string& flag) {
  const bool recomputes = !costs.recompute.empty();
  const bool sliced = layout.slices > 1;
  const auto slices = static_cast<double>(layout.slices);
  const double longest = sliced ? slices * std::ranges::max(parts_of_tokens(costs.slices, layout.slices)) : 1;
  InFlightLimit limit = limit_in_flight(layout, bytes, flag);
  std::vector<double> at_once(static_cast<std::size_t>(layout.workers), 0);
  const auto holders = stage_groups(layout.placement);
  for (std::size_t s = 0; s < costs.memory.size(); ++s) {
    const StageMemory& memory = costs.memory[s];
    const double between_slices = sliced ? memory.keys_and_values : 0;
    // With several slices, every slice counts as the longest, because a InFlightLimit has one size per stage.
    limit.size_of_stage[s] = longest * ((recomputes ? memory.boundary : memory.activations) + between_slices);
    for (const WorkerId holder : holders[s]) {
      const std::size_t worker = holder.index();
      limit.room_of_worker[worker] -= memory.weights + memory.gradients + memory.optimizer;
      // While a worker recomputes, one slice has all its activations again; only one op runs at a time.
      const double again = longest / slices * (memory.activations - memory.boundary);
      if (recomputes) at_once[worker] = std::max(at_once[worker], again);
    }
  }
  for (std::size_t w = 0; w < at_once.size(); ++w) limit.room_of_worker[w] -= at_once[w];
  return limit;
}

// One micro-batch at a time needs least memory: if it fits on every worker, some order keeps the limits.
std::optional<Shortage> find_shortage(const SearchProblem& problem) {
  Instance instance = queues_of(problem);
  add_limits(instance, problem);
  for (std::size_t limit = 0; limit < problem.limits.size(); ++limit) {
    for (std::size_t w = 0; w < instance.chains.size(); ++w) {
      const auto [needed, replica] = needed_by_one(instance, limit, w);
      if (needed > instance.room[limit][w] + kRounding)
        return Shortage{&problem.limits[limit], w, static_cast<std::size_t>(replica), needed};
    }
  }
  return std::nullopt;
}

void require_room(const SearchProblem& problem) {
  const auto shortage = find_shortage(problem);
  if (!shortage) return;
  const InFlightLimit& limit = *shortage->limit;
  reject(
      "search: {} is infeasible: worker {} has no memory for micro-batch {} of replica {}, which needs {:.6g} on this "
      "worker; the limit leaves {:.6g}",
      limit.flag, shortage->worker, problem.layout.micro_batches[shortage->replica].front().value(), shortage->replica,
      shortage->needed, limit.room_of_worker[shortage->worker]);
}

Instance make_instance(const SearchProblem& problem) {
  Instance instance = queues_of(problem);
  const Schedule schedule = without_ops(problem.layout);
  const CostTable costs(schedule, problem.costs);
  for (std::size_t index = 0; index < instance.queues.size(); ++index) {
    add_durations(instance, problem, costs, index);
    OpQueue& queue = instance.queues[index];
    const auto input = static_cast<std::size_t>(queue.input);
    if (queue.input == kNoQueue || instance.queues[input].worker == queue.worker) continue;
    queue.delay =
        least_of_slices(problem, any_op_of(instance, input), {}, [&](const Op& op) { return costs.message_time(op); });
  }
  add_limits(instance, problem);
  return instance;
}

Schedule to_schedule(const SearchProblem& problem, const Orders& orders) {
  Schedule schedule = without_ops(problem.layout);
  append_ops(schedule, queues_of(problem), problem.layout.micro_batches, orders);
  return schedule;
}

// The k-th op of a queue means micro-batch k of its replica, so the orders renumber the micro-batches of a schedule
// that runs them in another order.
Orders to_orders(const SearchProblem& problem, const Schedule& schedule) {
  Orders orders(schedule.workers.size());
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const Op& op : schedule.workers[w]) {
      const std::int64_t chain = op.replica.value() * problem.layout.stages + op.stage.value();
      const auto queue = static_cast<QueueIndex>(kQueuesOfChain * chain);
      if (op.kind == OpKind::Forward) orders[w].push_back(queue + kForwardStep);
      if (gives_input_gradient(op.kind)) orders[w].push_back(queue + kInputStep);
      if (gives_weight_gradient(op.kind) && problem.split_backward) orders[w].push_back(queue + kWeightStep);
    }
  }
  return orders;
}

double peak_of(const Instance& instance, const std::vector<double>& size, const std::vector<QueueIndex>& order) {
  double held = 0;
  double peak = 0;
  for (const QueueIndex index : order) {
    const OpQueue& queue = instance.queues[static_cast<std::size_t>(index)];
    const double change = size[static_cast<std::size_t>(index / kQueuesOfChain)];
    if (queue.takes) held += change;
    peak = std::max(peak, held);
    if (queue.releases) held -= change;
  }
  return peak;
}

double mean_duration(const Instance& instance) {
  double sum = 0;
  for (const OpQueue& queue : instance.queues)
    for (std::int32_t k = 0; k < queue.count; ++k) sum += instance.duration(queue, k);
  return sum / std::max(1, instance.ops);
}

bool is_admissible(const Instance& instance, const Orders& orders) {
  std::vector<std::int32_t> done(instance.queues.size(), 0);
  for (std::size_t w = 0; w < orders.size(); ++w) {
    for (const QueueIndex index : orders[w]) {
      const auto queue = static_cast<std::size_t>(index);
      const std::size_t step = queue % kQueuesOfChain;
      // A count suffices: the ops of a queue run in order, so those that are done are the first ones.
      if (step != kForwardStep && done[queue - 1] < instance.needed(step, done[queue])) return false;
      ++done[queue];
    }
    for (std::size_t limit = 0; limit < instance.size.size(); ++limit)
      if (peak_of(instance, instance.size[limit], orders[w]) > instance.room[limit][w] + kRounding) return false;
  }
  for (std::size_t queue = 0; queue < done.size(); ++queue)
    if (done[queue] != instance.queues[queue].count) return false;
  return true;
}

// Forwards depend on earlier stages, input gradients on later stages and forwards, weight gradients on input
// gradients.
std::vector<std::size_t> queues_in_order(const Instance& instance) {
  const std::size_t chains = instance.replica.size();
  std::vector<std::size_t> queues;
  for (std::size_t c = 0; c < chains; ++c) queues.push_back(kQueuesOfChain * c + kForwardStep);
  for (std::size_t c = chains; c-- > 0;) queues.push_back(kQueuesOfChain * c + kInputStep);
  for (std::size_t c = 0; c < chains; ++c) queues.push_back(kQueuesOfChain * c + kWeightStep);
  return queues;
}

std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain) {
  const auto worker = static_cast<std::size_t>(instance.queues[kQueuesOfChain * chain].worker);
  const std::int64_t most = most_of_smallest(instance, worker, {static_cast<std::int32_t>(chain)});
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, most));
}

std::int64_t most_in_flight(const Instance& instance, std::size_t worker) {
  return most_of_smallest(instance, worker, instance.chains[worker]);
}

}  // namespace chimera
