// generated_starts() takes schedules of the generators, and ListScheduling makes an order by a ListRule. Each worker
// has a tentative choice: the op that it would start next, and when. The choice with the earliest start of all workers
// is carried out (commit()), so ops are placed in the order of their starts, and the memory in use at a start is known.

#include "search/list_scheduling.h"

#include <fmt/format.h>
#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "generate/registry.h"

namespace chimera {
namespace {

/// Returns whether the schedule's ops are those of the layout, possibly with other numbers of micro-batches.
bool fits(const SearchLayout& layout, const Schedule& schedule) {
  if (schedule.placement != layout.placement || schedule.stages != layout.stages) return false;
  if (schedule.updates || schedule.micro_batch_scale != 1 || schedule.slices != layout.slices) return false;
  // Only the numbers of micro-batches must agree: to_orders() renumbers them.
  const auto dealt = micro_batches_of_replicas(schedule);
  for (std::size_t r = 0; r < dealt.size(); ++r) {
    if (dealt[r].size() != layout.micro_batches[r].size()) return false;
  }
  return true;
}

/// A generator's schedule of the shape, named by its rule if there are several.
struct NamedShape {
  std::string name;
  PipelineShape shape;
};

// Axes without numbers are named rules, such as the way to concatenate units. The layout already fixes the numbers.
std::vector<NamedShape> rules_of(const Generator& generator, const PipelineShape& shape) {
  std::vector<NamedShape> shapes = {{generator.name, shape}};
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (axis.is_number()) continue;
    std::vector<NamedShape> varied;
    for (const NamedShape& each : shapes) {
      for (const std::int64_t value : taken.planned(shape)) {
        axis.set(varied.emplace_back(each).shape, value);
        if (value != taken.usual) varied.back().name += fmt::format(" ({})", axis.text(value));
      }
    }
    shapes = varied;
  }
  std::erase_if(shapes, [&](const NamedShape& each) { return generator.find_shape_error(each.shape).has_value(); });
  return shapes;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Choice {
  QueueIndex queue = kNoQueue;
  double start = kNever;
  double rank = kNever;
};

// Without the reserve, younger micro-batches could take all memory while the oldest one needs more to end, and no op
// could ever start. The reserve is what the largest single micro-batch needs on the worker.
/// Memory held by the workers, and reserved for the oldest micro-batch.
class MemoryUse {
 public:
  explicit MemoryUse(const Instance& instance) : instance_(instance), in_flight_(instance.replica.size(), 0) {
    for (std::size_t limit = 0; limit < instance.size.size(); ++limit) {
      auto& held = held_.emplace_back();
      auto& needed = needed_.emplace_back();
      for (const auto& chains : instance.chains) {
        held.push_back(0);
        needed.push_back(most_of_one_replica(instance.size[limit], chains));
      }
    }
  }

  [[nodiscard]] std::int32_t in_flight(std::size_t chain) const { return in_flight_[chain]; }

  void change(std::size_t worker, std::size_t chain, std::int32_t by) {
    in_flight_[chain] += by;
    for (std::size_t limit = 0; limit < held_.size(); ++limit)
      held_[limit][worker] += by * instance_.size[limit][chain];
  }

  /// `done` counts finished ops by queue.
  [[nodiscard]] bool admits(std::size_t worker, std::size_t chain, const std::vector<std::int32_t>& done) const {
    if (held_.empty()) return true;
    const Oldest oldest = oldest_on(worker, done);
    const auto next = std::pair(done[kQueuesOfChain * chain] / instance_.slices, instance_.replica[chain]);
    // The oldest micro-batch may take what is reserved for it.
    if (next == std::pair(oldest.position, oldest.replica)) return true;
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      const double others = held_[limit][worker] - held_by(oldest, limit, worker, done) + instance_.size[limit][chain];
      if (others > instance_.room[limit][worker] - needed_[limit][worker] + kRounding) return false;
    }
    return true;
  }

 private:
  struct Oldest {
    std::int32_t position = std::numeric_limits<std::int32_t>::max();
    std::int32_t replica = 0;
  };

  double most_of_one_replica(const std::vector<double>& size, const std::vector<std::int32_t>& chains) const {
    double most = 0;
    for (const std::int32_t of : chains) {
      double sum = 0;
      for (const std::int32_t chain : chains) {
        if (instance_.replica[static_cast<std::size_t>(chain)] == instance_.replica[static_cast<std::size_t>(of)]) {
          sum += instance_.slices * size[static_cast<std::size_t>(chain)];
        }
      }
      most = std::max(most, sum);
    }
    return most;
  }

  std::int32_t ended(std::size_t chain, const std::vector<std::int32_t>& done) const {
    return done[kQueuesOfChain * chain + (instance_.split_backward ? kWeightStep : kInputStep)];
  }

  Oldest oldest_on(std::size_t worker, const std::vector<std::int32_t>& done) const {
    Oldest oldest;
    for (const std::int32_t index : instance_.chains[worker]) {
      const auto chain = static_cast<std::size_t>(index);
      if (ended(chain, done) == instance_.queues[kQueuesOfChain * chain].count) continue;
      const std::int32_t position = ended(chain, done) / instance_.slices;
      const std::int32_t replica = instance_.replica[chain];
      if (std::tie(position, replica) < std::tie(oldest.position, oldest.replica)) oldest = {position, replica};
    }
    return oldest;
  }

  double held_by(Oldest oldest, std::size_t limit, std::size_t worker, const std::vector<std::int32_t>& done) const {
    double held = 0;
    for (const std::int32_t index : instance_.chains[worker]) {
      const auto chain = static_cast<std::size_t>(index);
      if (instance_.replica[chain] != oldest.replica) continue;
      // Of the first `ops` ops of a queue, those of the oldest micro-batch: they come in the order of micro-batches.
      const auto of_oldest = [&](std::int32_t ops) {
        return std::clamp(ops - oldest.position * instance_.slices, 0, instance_.slices);
      };
      held += (of_oldest(done[kQueuesOfChain * chain]) - of_oldest(ended(chain, done))) * instance_.size[limit][chain];
    }
    return held;
  }

  const Instance& instance_;
  std::vector<std::int32_t> in_flight_;      // [chain]
  std::vector<std::vector<double>> held_;    // [limit][worker]
  std::vector<std::vector<double>> needed_;  // [limit][worker]: by the replica whose micro-batch holds most there
};

class ListScheduling {
 public:
  ListScheduling(const Instance& instance, const ListRule& rule, RandomSource& random)
      : instance_(instance),
        rule_(rule),
        random_(random),
        time_(std::max(mean_duration(instance), std::numeric_limits<double>::min())),
        stages_(stages_of_chains(instance)),
        holdings_(instance),
        end_(static_cast<std::size_t>(instance.ops)),
        done_(instance.queues.size(), 0),
        free_(static_cast<std::size_t>(instance.workers), 0),
        choices_(free_.size()),
        orders_(free_.size()) {}

  Orders run() {
    for (std::size_t w = 0; w < free_.size(); ++w) choices_[w] = choose(w);
    for (std::int32_t left = instance_.ops; left > 0; --left) {
      const auto first = std::min_element(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
        return std::tie(a.start, a.rank) < std::tie(b.start, b.rank);
      });
      commit(static_cast<std::size_t>(first - choices_.begin()), *first);
    }
    return std::move(orders_);
  }

 private:
  static std::vector<double> stages_of_chains(const Instance& instance) {
    std::vector<double> stages;
    for (std::size_t chain = 0; chain < instance.replica.size(); ++chain) {
      const bool first = chain == 0 || instance.replica[chain] != instance.replica[chain - 1];
      stages.push_back(first ? 0 : stages.back() + 1);
    }
    return stages;
  }

  /// Returns when the queue's next op can start, or nullopt while its inputs are not scheduled or memory lacks.
  std::optional<double> next_start(std::size_t worker, std::size_t index) const {
    const OpQueue& queue = instance_.queues[index];
    const std::int32_t k = done_[index];
    if (k >= queue.count) return std::nullopt;
    const std::size_t step = index % kQueuesOfChain;
    if (step != kForwardStep && done_[index - 1] < instance_.needed(step, k)) return std::nullopt;
    double start = free_[worker];
    if (queue.input != kNoQueue) {
      const auto input = static_cast<std::size_t>(queue.input);
      // Without the input's end, the start is not known yet; commit() of the input chooses for this worker again.
      if (done_[input] <= k) return std::nullopt;
      start = std::max(start, end_[static_cast<std::size_t>(instance_.queues[input].first + k)] + queue.delay);
    }
    if (queue.takes && !may_take(worker, index / kQueuesOfChain)) return std::nullopt;
    return start;
  }

  bool may_take(std::size_t worker, std::size_t chain) const {
    if (!rule_.credits.empty() && holdings_.in_flight(chain) >= rule_.credits[chain]) return false;
    return holdings_.admits(worker, chain, done_);
  }

  /// Chooses among the ops that can start within `window` of the earliest one. Waiting a little for a better op is what
  /// distinguishes good list schedules from greedy ones.
  Choice choose(std::size_t worker) {
    candidates_.clear();
    double earliest = kNever;
    for (const std::int32_t chain : instance_.chains[worker]) {
      for (QueueIndex queue = kQueuesOfChain * chain; queue < kQueuesOfChain * (chain + 1); ++queue) {
        const auto start = next_start(worker, static_cast<std::size_t>(queue));
        if (!start) continue;
        candidates_.push_back({queue, *start, kNever});
        earliest = std::min(earliest, *start);
      }
    }
    Choice best;
    for (Choice& candidate : candidates_) {
      const double wait = (candidate.start - earliest) / time_;
      if (wait > rule_.window + kRounding) continue;
      candidate.rank = rank_of(candidate.queue, wait);
      if (candidate.rank < best.rank) best = candidate;
    }
    return best;
  }

  double rank_of(QueueIndex queue, double wait) {
    const auto chain = static_cast<std::size_t>(queue / kQueuesOfChain);
    if (!rule_.model.empty()) {
      const OpQueue& ranked = instance_.queues[static_cast<std::size_t>(queue)];
      return rule_.model[static_cast<std::size_t>(ranked.first + done_[static_cast<std::size_t>(queue)])];
    }
    return rule_.step[static_cast<std::size_t>(queue % kQueuesOfChain)] +
           rule_.age * done_[static_cast<std::size_t>(queue)] / instance_.slices - rule_.depth * stages_[chain] +
           rule_.patience * wait + (rule_.noise > 0 ? rule_.noise * random_.uniform() : 0);
  }

  /// Starts the chosen op. Only its own worker and the worker that consumes its result can have new choices, so all
  /// other choices stay valid.
  void commit(std::size_t worker, Choice choice) {
    const auto index = static_cast<std::size_t>(choice.queue);
    const OpQueue& queue = instance_.queues[index];
    free_[worker] = choice.start + instance_.duration(queue, done_[index]);
    end_[static_cast<std::size_t>(queue.first + done_[index])] = free_[worker];
    ++done_[index];
    orders_[worker].push_back(choice.queue);
    if (queue.takes) holdings_.change(worker, index / kQueuesOfChain, 1);
    if (queue.releases) holdings_.change(worker, index / kQueuesOfChain, -1);
    choices_[worker] = choose(worker);
    if (queue.output == kNoQueue) return;
    const auto next = static_cast<std::size_t>(instance_.queues[static_cast<std::size_t>(queue.output)].worker);
    if (next != worker) choices_[next] = choose(next);
  }

  const Instance& instance_;
  const ListRule& rule_;
  RandomSource& random_;
  double time_;                 // mean duration of an op
  std::vector<double> stages_;  // [chain]
  MemoryUse holdings_;
  std::vector<double> end_;         // [op]
  std::vector<std::int32_t> done_;  // [queue]
  std::vector<double> free_;        // [worker]
  std::vector<Choice> choices_;     // [worker]
  std::vector<Choice> candidates_;  // buffer of choose()
  Orders orders_;
};

}  // namespace

std::vector<Schedule> generated_starts(const SearchLayout& layout, const PipelineShape& shape) {
  std::vector<Schedule> starts;
  for (const Generator& generator : generators()) {
    for (const NamedShape& named : rules_of(generator, shape)) {
      Schedule schedule = generator.generate(named.shape);
      if (!fits(layout, schedule)) continue;
      schedule.name = named.name;
      starts.push_back(std::move(schedule));
    }
  }
  return starts;
}

ListRule random_rule(const Instance& instance, RandomSource& random) {
  ListRule rule;
  // Around the usual order of kinds: I (or B), then F, then W.
  rule.step = {1.5 * random.uniform(), 0, 1 + random.uniform()};
  rule.age = random.chance(0.5) ? 0.01 : 0.3 * random.uniform();
  rule.depth = 0.1 * random.uniform();
  rule.window = random.chance(0.2) ? 0 : 1.5 * random.uniform();
  rule.patience = 2 * random.uniform();
  rule.noise = random.chance(0.3) ? 0 : random.uniform();
  if (random.chance(0.5)) return rule;
  // Slices that keep a chain busy during the round trip to the last stage, plus or minus one.
  std::int32_t to_go = 0;
  rule.credits.resize(instance.replica.size());
  for (std::size_t chain = instance.replica.size(); chain-- > 0;) {
    const bool last = chain + 1 == instance.replica.size() || instance.replica[chain] != instance.replica[chain + 1];
    to_go = last ? 1 : to_go + 1;
    rule.credits[chain] = std::max(1, to_go + static_cast<std::int32_t>(random.below(3)) - 1) + instance.slices - 1;
  }
  return rule;
}

Orders orders_by_rule(const Instance& instance, const ListRule& rule, RandomSource& random) {
  return ListScheduling(instance, rule, random).run();
}

}  // namespace chimera
