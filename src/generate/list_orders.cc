// Each worker has a tentative choice: the op that it would start next, and when. The choice with the earliest start of
// all workers is carried out (commit()), so ops are placed in the order of their starts, and the memory in use at a
// start is known. A tree over the workers finds this choice.

#include "generate/list_orders.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <tuple>

#include "core/invariant.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr std::size_t kBits = 64;
constexpr double kNever = std::numeric_limits<double>::infinity();

// Without the reserve, younger micro-batches could take all memory while the oldest one needs more to end, and no op
// could ever start. The reserve is what the largest single micro-batch needs on the worker.
/// Memory held by the workers, and reserved for the oldest micro-batch.
class MemoryUse {
 public:
  /// `done` counts finished ops by queue.
  MemoryUse(const Instance& instance, const std::vector<std::int32_t>& done)
      : instance_(instance),
        done_(done),
        in_flight_(instance.replica.size(), 0),
        position_(instance.replica.size(), 0),
        on_worker_(instance.chains.size(), 0),
        held_(instance.size.size(), std::vector<double>(instance.chains.size(), 0)),
        held_by_others_(held_),
        needed_(held_),
        oldest_(instance.chains.size()) {
    for (std::size_t w = 0; w < instance.chains.size(); ++w) {
      for (std::size_t limit = 0; limit < held_.size(); ++limit)
        needed_[limit][w] = needed_by_one(instance, limit, w).first;
      if (!held_.empty()) note_oldest(w);
    }
  }

  [[nodiscard]] std::int32_t in_flight(std::size_t chain) const { return in_flight_[chain]; }
  [[nodiscard]] std::int32_t on_worker(std::size_t worker) const { return on_worker_[worker]; }

  /// Counts the start (1) or end (-1) of a slice, which `done` must contain already.
  void change(std::size_t worker, std::size_t chain, std::int32_t by) {
    in_flight_[chain] += by;
    on_worker_[worker] += by;
    if (held_.empty()) return;
    const bool is_of_others = !is_oldest(worker, chain, (by > 0 ? begun(chain) : ended(chain)) - 1);
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      held_[limit][worker] += by * instance_.size[limit][chain];
      if (is_of_others) held_by_others_[limit][worker] += by * instance_.size[limit][chain];
    }
    if (by > 0 || ended(chain) < (position_[chain] + 1) * instance_.slices) return;
    ++position_[chain];
    if (!is_of_others) note_oldest(worker);
  }

  [[nodiscard]] bool admits(std::size_t worker, std::size_t chain) const {
    if (held_.empty()) return true;
    // The oldest micro-batch may take what is reserved for it.
    if (is_oldest(worker, chain, begun(chain))) return true;
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      const double others = held_by_others_[limit][worker] + instance_.size[limit][chain];
      if (others > instance_.room[limit][worker] - needed_[limit][worker] + kRounding) return false;
    }
    return true;
  }

 private:
  using Oldest = std::pair<std::int32_t, std::int32_t>;  // Position in its replica, and replica

  std::int32_t begun(std::size_t chain) const { return done_[kQueuesOfChain * chain]; }
  std::int32_t ended(std::size_t chain) const {
    return done_[kQueuesOfChain * chain + (instance_.split_backward ? kWeightStep : kInputStep)];
  }

  /// Returns whether op `k` of the chain is of the worker's oldest micro-batch.
  bool is_oldest(std::size_t worker, std::size_t chain, std::int32_t k) const {
    const auto [position, replica] = oldest_[worker];
    const std::int64_t slice = k - std::int64_t{position} * instance_.slices;
    return instance_.replica[chain] == replica && slice >= 0 && slice < instance_.slices;
  }

  void note_oldest(std::size_t worker) {
    Oldest oldest{std::numeric_limits<std::int32_t>::max(), 0};
    for (const std::int32_t index : instance_.chains[worker]) {
      const auto chain = static_cast<std::size_t>(index);
      if (ended(chain) < instance_.queues[kQueuesOfChain * chain].count)
        oldest = std::min(oldest, {position_[chain], instance_.replica[chain]});
    }
    oldest_[worker] = oldest;
    // Of the first `ops` ops of a queue, those of the oldest micro-batch: they come in the order of micro-batches.
    const auto of_oldest = [&](std::int32_t ops) {
      const std::int64_t before = std::int64_t{oldest.first} * instance_.slices;
      return static_cast<double>(std::clamp<std::int64_t>(ops - before, 0, instance_.slices));
    };
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      double held = 0;
      for (const std::int32_t index : instance_.chains[worker]) {
        const auto chain = static_cast<std::size_t>(index);
        if (instance_.replica[chain] == oldest.second)
          held += (of_oldest(begun(chain)) - of_oldest(ended(chain))) * instance_.size[limit][chain];
      }
      held_by_others_[limit][worker] = held_[limit][worker] - held;
    }
  }

  const Instance& instance_;
  const std::vector<std::int32_t>& done_;
  std::vector<std::int32_t> in_flight_;              // [chain]
  std::vector<std::int32_t> position_;               // [chain]: micro-batches that have ended
  std::vector<std::int32_t> on_worker_;              // [worker]: slices in flight
  std::vector<std::vector<double>> held_;            // [limit][worker]
  std::vector<std::vector<double>> held_by_others_;  // [limit][worker]: without the oldest micro-batch
  std::vector<std::vector<double>> needed_;  // [limit][worker]: by the replica whose micro-batch holds most there
  std::vector<Oldest> oldest_;               // [worker]: its oldest unfinished micro-batch
};

class ListScheduler {
 public:
  ListScheduler(const Instance& instance, const ListPolicy& policy)
      : instance_(instance),
        policy_(policy),
        end_(static_cast<std::size_t>(instance.ops)),
        done_(instance.queues.size(), 0),
        arrival_(instance.queues.size()),
        rank_(instance.queues.size()),
        memory_(instance, done_),
        free_(instance.chains.size(), 0),
        choices_(free_.size()),
        first_(free_.size(), 0),
        slot_(instance.queues.size()),
        ready_(free_.size()) {
    result_.orders.resize(free_.size());
    for (std::size_t w = 0; w < ready_.size(); ++w) {
      const auto& chains = instance.chains[w];
      ready_[w].resize(kQueuesOfChain * chains.size() / kBits + 1);
      for (std::size_t i = 0; i < kQueuesOfChain * chains.size(); ++i)
        slot_[kQueuesOfChain * static_cast<std::size_t>(chains[i / kQueuesOfChain]) + i % kQueuesOfChain] = i;
    }
  }

  ListedOrders run() {
    for (std::size_t queue = 0; queue < arrival_.size(); ++queue) look_up(queue);
    for (std::size_t w = 0; w < free_.size(); ++w) choose(w);
    for (std::int32_t left = instance_.ops; left > 0; --left) commit(first(1));
    result_.makespan = *std::ranges::max_element(free_);
    return std::move(result_);
  }

 private:
  struct Choice {
    QueueIndex queue = kNoQueue;
    double start = kNever;
    AgedRank rank = {};
  };

  /// Notes when the inputs of the queue's next op arrive.
  void look_up(std::size_t index) {
    const OpQueue& queue = instance_.queues[index];
    const std::int32_t k = done_[index];
    const std::size_t step = index % kQueuesOfChain;
    std::uint64_t& ready = ready_[static_cast<std::size_t>(queue.worker)][slot_[index] / kBits];
    const std::uint64_t bit = std::uint64_t{1} << slot_[index] % kBits;
    arrival_[index] = kNever;
    ready &= ~bit;
    if (k >= queue.count) return;
    if (step != kForwardStep && done_[index - 1] < instance_.needed(step, k)) return;
    double arrival = 0;
    if (queue.input != kNoQueue) {
      const auto input = static_cast<std::size_t>(queue.input);
      if (done_[input] <= k) return;
      arrival = end_[static_cast<std::size_t>(instance_.queues[input].first + k)] + queue.delay;
    }
    arrival_[index] = arrival;
    ready |= bit;
    rank_[index] = policy_.rank_of(static_cast<QueueIndex>(index), k, arrival);
  }

  bool may_take(std::size_t worker, std::size_t chain) const {
    if (!policy_.credits.empty() && memory_.in_flight(chain) >= policy_.credits[chain]) return false;
    const std::size_t forward = kQueuesOfChain * chain;
    const bool enters = instance_.queues[forward].input == kNoQueue;
    if (enters && done_[forward] - done_[forward + kInputStep] >= policy_.admitted) return false;
    return memory_.admits(worker, chain);
  }

  /// Chooses among the ops that can start within `window` of the earliest one. Waiting a little for a better op is what
  /// distinguishes good list schedules from greedy ones.
  void choose(std::size_t worker) {
    candidates_.clear();
    double earliest = kNever;
    for (std::size_t word = 0; word < ready_[worker].size(); ++word) {
      for (std::uint64_t bits = ready_[worker][word]; bits != 0; bits &= bits - 1) {
        const std::size_t slot = kBits * word + static_cast<std::size_t>(std::countr_zero(bits));
        const auto chain = static_cast<std::size_t>(instance_.chains[worker][slot / kQueuesOfChain]);
        const std::size_t index = kQueuesOfChain * chain + slot % kQueuesOfChain;
        if (slot % kQueuesOfChain == kForwardStep && !may_take(worker, chain)) continue;
        const double start = std::max(free_[worker], arrival_[index]);
        candidates_.push_back({static_cast<QueueIndex>(index), start, rank_[index]});
        earliest = std::min(earliest, start);
      }
    }
    // A worker at its limit first frees activations, which only a W does.
    const auto is_weight = [](const Choice& each) { return each.queue % kQueuesOfChain == kWeightStep; };
    if (memory_.on_worker(worker) >= policy_.most_held && std::ranges::any_of(candidates_, is_weight))
      std::erase_if(candidates_, std::not_fn(is_weight));
    Choice best;
    for (Choice& candidate : candidates_) {
      const double wait = (candidate.start - earliest) / policy_.unit;
      if (wait > policy_.window + kRounding) continue;
      candidate.rank.rank += policy_.patience * wait;
      if (policy_.noise) candidate.rank.rank += policy_.noise();
      if (candidate.rank < best.rank) best = candidate;
    }
    choices_[worker] = best;
    for (std::size_t node = (worker + free_.size()) / 2; node > 0; node /= 2) {
      const std::size_t before = first_[node];
      const std::size_t a = first(2 * node);
      const std::size_t b = first(2 * node + 1);
      const auto order = [this](std::size_t w) { return std::tie(choices_[w].start, choices_[w].rank); };
      first_[node] = order(b) < order(a) || (order(b) == order(a) && b < a) ? b : a;
      if (first_[node] == before && before != worker) break;
    }
  }

  /// Returns the worker of the earliest choice below a node of the tree; node 1 is its root.
  std::size_t first(std::size_t node) const { return node < free_.size() ? first_[node] : node - free_.size(); }

  /// Starts the chosen op. Only its own worker and the worker that consumes its result can have new choices, so all
  /// other choices stay valid.
  void commit(std::size_t worker) {
    const Choice choice = choices_[worker];
    require_invariant(choice.queue != kNoQueue, "list scheduling ended before all ops had run");
    const auto index = static_cast<std::size_t>(choice.queue);
    const OpQueue& queue = instance_.queues[index];
    free_[worker] = choice.start + instance_.duration(queue, done_[index]);
    end_[static_cast<std::size_t>(queue.first + done_[index])] = free_[worker];
    ++done_[index];
    result_.orders[worker].push_back(choice.queue);
    if (queue.takes) memory_.change(worker, index / kQueuesOfChain, 1);
    if (queue.releases) memory_.change(worker, index / kQueuesOfChain, -1);
    look_up(index);
    if (index % kQueuesOfChain != kWeightStep) look_up(index + 1);
    if (queue.output != kNoQueue) look_up(static_cast<std::size_t>(queue.output));
    choose(worker);
    if (queue.output != kNoQueue) offer(worker, static_cast<std::size_t>(queue.output));
  }

  /// Chooses again on the queue's worker if the queue's next op, whose inputs may be new, can be better than the
  /// choice.
  void offer(std::size_t from, std::size_t queue) {
    const auto worker = static_cast<std::size_t>(instance_.queues[queue].worker);
    if (worker == from) return;
    const Choice& choice = choices_[worker];
    const double wait = (std::max(free_[worker], arrival_[queue]) - choice.start) / policy_.unit;
    const bool is_worse = wait > policy_.window + kRounding || (wait >= 0 && choice.rank < rank_[queue]);
    if (policy_.noise || !is_worse) choose(worker);
  }

  const Instance& instance_;
  const ListPolicy& policy_;
  std::vector<double> end_;         // [op]
  std::vector<std::int32_t> done_;  // [queue]
  std::vector<double> arrival_;     // [queue]: of its next op's inputs; kNever while they are not scheduled
  std::vector<AgedRank> rank_;      // [queue]: of its next op, if its inputs are scheduled
  MemoryUse memory_;
  std::vector<double> free_;        // [worker]
  std::vector<Choice> choices_;     // [worker]
  std::vector<std::size_t> first_;  // [inner node of the tree]
  std::vector<std::size_t> slot_;   // [queue]: its place among those of its worker, in the order of Instance::chains
  std::vector<std::vector<std::uint64_t>> ready_;  // [worker]: a bit of each slot, for a known arrival
  std::vector<Choice> candidates_;                 // Buffer of choose()
  ListedOrders result_;
};

void connect(std::vector<OpQueue>& queues, QueueIndex from, QueueIndex to) {
  // Both ends know each other: Evaluator waits for the input, list scheduling and Windows also follow the output.
  queues[static_cast<std::size_t>(to)].input = from;
  queues[static_cast<std::size_t>(from)].output = to;
}

}  // namespace

void add_queues(Instance& instance, const Placement& placement, const MicroBatches& micro_batches) {
  instance.chains.resize(static_cast<std::size_t>(instance.workers));
  for (std::size_t r = 0; r < placement.num_replicas(); ++r) {
    const auto count = instance.slices * static_cast<std::int32_t>(micro_batches[r].size());
    for (std::size_t s = 0; s < placement.worker_of[r].size(); ++s) {
      const auto chain = static_cast<std::int32_t>(instance.replica.size());
      const auto worker = static_cast<std::int32_t>(placement.worker_of[r][s].value());
      // A queue without ops (W, if backwards are whole) stays, so that indexes are regular.
      for (QueueIndex step = 0; step < kQueuesOfChain; ++step) {
        const std::int32_t ops = step == kWeightStep && !instance.split_backward ? 0 : count;
        instance.queues.push_back({.worker = worker,
                                   .count = ops,
                                   .first = instance.ops,
                                   .takes = step == kForwardStep,
                                   .releases = step == (instance.split_backward ? kWeightStep : kInputStep)});
        instance.ops += ops;
      }
      if (s > 0) {
        // Activations onward, gradients back.
        const QueueIndex here = kQueuesOfChain * chain;
        connect(instance.queues, here - kQueuesOfChain + kForwardStep, here + kForwardStep);
        connect(instance.queues, here + kInputStep, here - kQueuesOfChain + kInputStep);
      }
      instance.replica.push_back(static_cast<std::int32_t>(r));
      instance.stage.push_back(static_cast<std::int32_t>(s));
      instance.chains[static_cast<std::size_t>(worker)].push_back(chain);
    }
  }
}

OpKind kind_of(const Instance& instance, QueueIndex queue) {
  switch (queue % kQueuesOfChain) {
    case kForwardStep: return OpKind::Forward;
    case kInputStep: return instance.split_backward ? OpKind::BackwardInput : OpKind::Backward;
    default: return OpKind::BackwardWeight;
  }
}

Op op_of(const Instance& instance, const MicroBatches& micro_batches, QueueIndex queue, std::int32_t k) {
  const auto chain = static_cast<std::size_t>(queue / kQueuesOfChain);
  const ReplicaId replica(instance.replica[chain]);
  Op op = sliced_op(kind_of(instance, queue), replica, StageId(instance.stage[chain]), k, instance.slices);
  op.micro_batch = micro_batches[replica.index()].at(op.micro_batch.index());
  return op;
}

void append_ops(Schedule& schedule, const Instance& instance, const MicroBatches& micro_batches, const Orders& orders) {
  std::vector<std::int32_t> done(instance.queues.size(), 0);
  for (std::size_t w = 0; w < orders.size(); ++w) {
    schedule.workers[w].reserve(orders[w].size());
    for (const QueueIndex queue : orders[w])
      schedule.workers[w].push_back(op_of(instance, micro_batches, queue, done[static_cast<std::size_t>(queue)]++));
  }
}

std::pair<double, std::int32_t> needed_by_one(const Instance& instance, std::size_t limit, std::size_t worker) {
  std::pair<double, std::int32_t> most;
  std::map<std::int32_t, double> needed;  // By replica
  for (const std::int32_t index : instance.chains[worker]) {
    const auto chain = static_cast<std::size_t>(index);
    if (instance.queues[kQueuesOfChain * chain].count == 0) continue;
    const std::int32_t replica = instance.replica[chain];
    const double sum = needed[replica] += instance.slices * instance.size[limit][chain];
    if (sum > most.first) most = {sum, replica};
  }
  return most;
}

ListedOrders list_orders(const Instance& instance, const ListPolicy& policy) {
  return ListScheduler(instance, policy).run();
}

}  // namespace chimera
