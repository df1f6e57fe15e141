// make_instance() makes the arrays: the queues of each chain (add_lanes()), what they depend on (connect_stages()), and
// memory. to_schedule() and to_orders() translate between schedules and orders of queues. The functions behind them
// answer questions that several algorithms of the search ask.

#include "search/instance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reject.h"
#include "simulate/cost_table.h"

namespace chimera {
namespace {

StageId stage_of(const SearchProblem& problem, std::size_t chain) {
  return StageId(static_cast<std::int64_t>(chain) % problem.layout.stages);
}

ReplicaId replica_of(const SearchProblem& problem, std::size_t chain) {
  return ReplicaId(static_cast<std::int64_t>(chain) / problem.layout.stages);
}

OpKind kind_of(bool split, QueueIndex queue) {
  switch (queue % kQueuesOfChain) {
    case kForwardStep: return OpKind::Forward;
    case kInputStep: return split ? OpKind::BackwardInput : OpKind::Backward;
    default: return OpKind::BackwardWeight;
  }
}

void connect(std::vector<OpQueue>& queues, QueueIndex from, QueueIndex to, double message_time) {
  OpQueue& consumer = queues[static_cast<std::size_t>(to)];
  OpQueue& producer = queues[static_cast<std::size_t>(from)];
  // Both ends know each other: Evaluator waits for the input, ListScheduling and Windows also follow the output.
  consumer.input = from;
  consumer.delay = producer.worker == consumer.worker ? 0 : message_time;
  producer.output = to;
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

/// Connects the queues of neighboring stages of a replica: activations onward, gradients back.
void connect_stages(Instance& instance, const SearchProblem& problem, const CostTable& costs) {
  for (std::size_t chain = 0; chain + 1 < instance.replica.size(); ++chain) {
    const std::size_t next = chain + 1;
    if (instance.replica[chain] != instance.replica[next]) continue;
    const auto connect_step = [&](QueueKind step, std::size_t from, std::size_t to) {
      const OpKind kind = kind_of(problem.split_backward, step);
      const double message_time =
          least_of_slices(problem, {kind, replica_of(problem, from), stage_of(problem, from), {}}, {},
                          [&](const Op& op) { return costs.message_time(op); });
      connect(instance.queues, static_cast<QueueIndex>(kQueuesOfChain * from) + step,
              static_cast<QueueIndex>(kQueuesOfChain * to) + step, message_time);
    };
    connect_step(kForwardStep, chain, next);
    connect_step(kInputStep, next, chain);
  }
}

/// Adds the three queues of a chain. A queue without ops (W, if backwards are whole) stays, so that indexes are
/// regular.
void add_lanes(Instance& instance, const SearchProblem& problem, const CostTable& costs, std::size_t chain) {
  const StageId stage = stage_of(problem, chain);
  const ReplicaId replica = replica_of(problem, chain);
  const auto count = instance.slices * static_cast<std::int32_t>(problem.layout.micro_batches[replica.index()].size());
  for (QueueIndex step = 0; step < kQueuesOfChain; ++step) {
    OpQueue queue;
    queue.worker = static_cast<std::int32_t>(problem.layout.placement.worker(replica, stage).value());
    queue.count = step == kWeightStep && !problem.split_backward ? 0 : count;
    queue.first = instance.ops;
    const auto duration = [&](MicroBatchId id) {
      return least_of_slices(problem, {kind_of(problem.split_backward, step), replica, stage, {}}, id,
                             [&](const Op& op) { return costs.duration(op); });
    };
    const bool has_equal_work = !costs.scale().has_unequal_work();
    queue.duration = has_equal_work ? duration({}) : std::numeric_limits<double>::infinity();
    for (std::int32_t i = 0; i < (has_equal_work ? 0 : count); ++i) {
      const double each =
          duration(problem.layout.micro_batches[replica.index()][static_cast<std::size_t>(i / instance.slices)]);
      queue.duration = std::min(queue.duration, each);
      if (i < queue.count) instance.durations.push_back(each);
    }
    queue.takes = step == kForwardStep;
    queue.releases = step == (problem.split_backward ? kWeightStep : kInputStep);
    instance.ops += queue.count;
    instance.queues.push_back(queue);
  }
  instance.replica.push_back(static_cast<std::int32_t>(replica.value()));
  instance.chains[static_cast<std::size_t>(instance.queues.back().worker)].push_back(static_cast<std::int32_t>(chain));
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

// One micro-batch at a time needs least memory: if it fits on every worker, some order keeps the limits.
std::optional<Shortage> find_shortage(const SearchProblem& problem) {
  const SearchLayout& layout = problem.layout;
  for (const InFlightLimit& limit : problem.limits) {
    for (std::size_t r = 0; r < layout.placement.num_replicas(); ++r) {
      if (layout.micro_batches[r].empty()) continue;
      std::vector<double> needed(static_cast<std::size_t>(layout.workers), 0);
      for (std::size_t s = 0; s < static_cast<std::size_t>(layout.stages); ++s) {
        needed[layout.placement.worker_of[r][s].index()] += limit.size_of_stage[s];
      }
      for (std::size_t w = 0; w < needed.size(); ++w) {
        if (needed[w] > limit.room_of_worker[w] + kRounding) return Shortage{&limit, w, r, needed[w]};
      }
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
  Instance instance;
  instance.workers = static_cast<std::int32_t>(problem.layout.workers);
  instance.slices = static_cast<std::int32_t>(problem.layout.slices);
  instance.split_backward = problem.split_backward;
  instance.chains.resize(static_cast<std::size_t>(instance.workers));
  const std::size_t chains = problem.layout.placement.num_replicas() * static_cast<std::size_t>(problem.layout.stages);
  const Schedule schedule = without_ops(problem.layout);
  const CostTable costs(schedule, problem.costs);
  // By replica, then by stage, so that connect_stages() finds the next stage in the next chain.
  for (std::size_t chain = 0; chain < chains; ++chain) add_lanes(instance, problem, costs, chain);
  connect_stages(instance, problem, costs);
  for (const InFlightLimit& limit : problem.limits) {
    auto& sizes = instance.size.emplace_back();
    for (std::size_t chain = 0; chain < chains; ++chain) {
      sizes.push_back(limit.size_of_stage[stage_of(problem, chain).index()] / instance.slices);
    }
    instance.room.push_back(limit.room_of_worker);
  }
  return instance;
}

Schedule to_schedule(const SearchProblem& problem, const Orders& orders) {
  Schedule schedule = without_ops(problem.layout);
  const auto slices = static_cast<std::size_t>(problem.layout.slices);
  for (std::size_t w = 0; w < orders.size(); ++w) {
    std::vector<std::size_t> next(problem.layout.placement.num_replicas() *
                                  static_cast<std::size_t>(problem.layout.stages * kQueuesOfChain));
    for (const QueueIndex queue : orders[w]) {
      const auto chain = static_cast<std::size_t>(queue / kQueuesOfChain);
      const ReplicaId replica = replica_of(problem, chain);
      const std::size_t i = next[static_cast<std::size_t>(queue)]++;
      const std::size_t slice = i % slices;
      Op op{kind_of(problem.split_backward, queue), replica, stage_of(problem, chain),
            problem.layout.micro_batches[replica.index()].at(i / slices)};
      op.slice = static_cast<std::int16_t>(op.kind == OpKind::Forward ? slice : slices - 1 - slice);
      schedule.workers[w].push_back(op);
    }
  }
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
  for (const OpQueue& queue : instance.queues) {
    for (std::int32_t k = 0; k < queue.count; ++k) sum += instance.duration(queue, k);
  }
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
    for (std::size_t limit = 0; limit < instance.size.size(); ++limit) {
      if (peak_of(instance, instance.size[limit], orders[w]) > instance.room[limit][w] + kRounding) return false;
    }
  }
  for (std::size_t queue = 0; queue < done.size(); ++queue) {
    if (done[queue] != instance.queues[queue].count) return false;
  }
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
