// count_ops() counts the ops of each class (replica, stage and kind), `Flow` computes heads and tails of the classes of
// a replica, and lower_bound() puts the classes of each worker together, for which worker_bound() computes the bound.
// The heads of a class form a Progression: they are not stored op by op, so memory does not grow with the number of
// micro-batches.

#include "simulate/lower_bound.h"

#include "core/mapped.h"
#include "simulate/cost_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

namespace chimera {
namespace {

constexpr std::int64_t kFewClasses = 16;                    // maximum number of classes on a worker
constexpr std::int64_t kManySteps = std::int64_t{1} << 24;  // ops times classes on a worker
// maximum number of stages in all replicas: about 1 GB of classes
constexpr std::size_t kMaxCopies = std::size_t{1} << 22;
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

using Counts = std::array<std::int64_t, kOpKinds>;

/// Heads or tails of a class's ops: the k-th smallest, from 0, is first + k step.
struct Progression {
  double first = 0;
  double step = 0;
};

Progression longer(Progression a, Progression b) {
  // The maximum of two progressions is no progression. Either one is a valid lower bound; the later start is taken.
  if (a.first != b.first) return a.first > b.first ? a : b;
  return a.step > b.step ? a : b;
}

/// Ops of a replica, stage and kind. Op k, from 0, has head head(k) and tail tail(k).
struct OpClass {
  std::int64_t count = 0;
  double body = 0;   // worker time, including a blocking send; the least of a slice
  double block = 0;  // the blocking send
  double work = 0;   // sum of all bodies
  Progression heads;
  Progression tails;
  [[nodiscard]] double head(std::int64_t k) const { return heads.first + static_cast<double>(k) * heads.step; }
  [[nodiscard]] double tail(std::int64_t k) const {
    return tails.first + static_cast<double>(count - 1 - k) * tails.step;
  }
};

std::vector<Counts> count_ops(const Schedule& schedule) {
  const auto stages = static_cast<std::size_t>(schedule.stages);
  std::vector<Counts> counts(schedule.placement.num_replicas() * stages, Counts{});
  for (const auto& ops : schedule.workers)
    for (const Op& op : ops)
      ++counts[op.replica.index() * stages + op.stage.index()][static_cast<std::size_t>(op.kind)];
  return counts;
}

/// Returns whether each stage runs as many forwards, input gradients and weight gradients as its replica's first stage
/// runs forwards.
bool complete(const std::vector<Counts>& counts, std::size_t stages) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto& [forward, backward, input, weight] = counts[i];
    if (forward != counts[i - i % stages][0] || backward + input != forward || input != weight) return false;
  }
  return true;
}

/// The only bound that holds if ops are missing: some worker's work.
double busiest(const Schedule& schedule, const CostTable& costs) {
  double most = 0;
  for (const auto& ops : schedule.workers) {
    double work = 0;
    for (const Op& op : ops) work += costs.least_duration(op);
    most = std::max(most, work);
  }
  return most;
}

class Flow {
 public:
  Flow(const Schedule& schedule, const CostTable& costs, ReplicaId replica, const Counts* counts,
       const std::vector<double>& after_gradients)
      : schedule_(schedule),
        costs_(costs),
        replica_(replica),
        counts_(counts),
        after_gradients_(after_gradients),
        classes_(static_cast<std::size_t>(schedule.stages)) {
    if (!costs.scale().has_unequal_work()) return;
    members_ = micro_batches_of_replicas(schedule)[replica.index()];
    const auto work = [&](MicroBatchId id) { return costs.scale().work(id); };
    std::tie(lightest_, heaviest_) =
        std::pair(*std::ranges::min_element(members_, {}, work), *std::ranges::max_element(members_, {}, work));
  }

  /// Returns [stage][kind]; classes without ops have count 0.
  std::vector<std::array<OpClass, kOpKinds>> run() {
    for (std::size_t s = 0; s < classes_.size(); ++s)
      for (int k = 0; k < kOpKinds; ++k) fill(s, static_cast<OpKind>(k));
    find_heads();
    find_tails();
    return std::move(classes_);
  }

 private:
  OpClass& at(std::size_t stage, OpKind kind) { return classes_[stage][static_cast<std::size_t>(kind)]; }
  [[nodiscard]] bool has(std::size_t stage, OpKind kind) const {
    return counts_[stage][static_cast<std::size_t>(kind)] > 0;
  }
  [[nodiscard]] bool crosses(std::size_t stage) const {
    const auto& row = schedule_.placement.worker_of[replica_.index()];
    return row[stage] != row[stage + 1];
  }
  [[nodiscard]] Op op_of(std::size_t stage, OpKind kind, std::int64_t slice, MicroBatchId micro_batch) const {
    Op op{kind, replica_, StageId(static_cast<std::int64_t>(stage)), micro_batch};
    op.slice = static_cast<std::int16_t>(slice);
    return op;
  }
  /// Least of all slices of the lightest and the heaviest micro-batch.
  template <class Value>
  [[nodiscard]] double least(std::size_t stage, OpKind kind, Value&& value) const {
    // Values rise or fall with the work of a micro-batch, so its extremes suffice.
    double found = kUnbounded;
    for (std::int64_t j = 0; j < costs_.slices(); ++j)
      for (const MicroBatchId id : {lightest_, heaviest_}) found = std::min(found, value(op_of(stage, kind, j, id)));
    return found;
  }
  /// Time, and spacing on one link, of messages between `stage` and the next.
  [[nodiscard]] Progression message(std::size_t stage, bool onward) const {
    if (!crosses(stage)) return {};
    const auto [from, kind] = onward ? std::pair(stage, OpKind::Forward) : std::pair(stage + 1, OpKind::BackwardInput);
    const auto spacing = [&](const Op& made) {
      // If a burst hides the whole time on the link, messages need not keep a distance.
      const double link_time = costs_.link_time(made);
      return link_time < costs_.burst(made) ? 0 : link_time;
    };
    return {least(from, kind, [&](const Op& made) { return costs_.message_time(made); }), least(from, kind, spacing)};
  }
  [[nodiscard]] double duration(std::size_t stage, OpKind kind) const {
    return least(stage, kind, [&](const Op& op) { return costs_.duration(op); });
  }
  [[nodiscard]] double recomputation(std::size_t stage) const {
    return least(stage, OpKind::Backward, [&](const Op& op) { return costs_.recomputation(op); });
  }
  [[nodiscard]] double longest_recomputation(std::size_t stage) const {
    return -least(stage, OpKind::Backward, [&](const Op& op) { return -costs_.recomputation(op); });
  }
  /// Shortest op that gives an input gradient, a lower bound for stages with B and I.
  [[nodiscard]] double gradient_duration(std::size_t stage) const {
    double shortest = kUnbounded;
    for (const OpKind kind : {OpKind::Backward, OpKind::BackwardInput})
      if (has(stage, kind)) shortest = std::min(shortest, duration(stage, kind));
    return shortest;
  }

  void fill(std::size_t stage, OpKind kind) {
    OpClass& filled = at(stage, kind);
    filled.count = counts_[stage][static_cast<std::size_t>(kind)];
    const bool on = kind == OpKind::Forward && stage + 1 < classes_.size();
    const bool back = gives_input_gradient(kind) && stage > 0;
    if (costs_.blocking_sends() && (on || back)) filled.block = message(on ? stage : stage - 1, on).first;
    // The two messages of a pair are sent together, so the worker waits for at least half of both.
    const double waited = costs_.pairs() == Pairs::Together ? filled.block / 2 : filled.block;
    filled.body = least(stage, kind, [&](const Op& op) { return costs_.least_duration(op); }) + waited;
    filled.work = static_cast<double>(filled.count) * filled.body;
    // So far, every op counts as the shortest of its class. With slices or unequal micro-batches, the sum over the ops
    // of all micro-batches is larger, and as valid.
    const auto all = [&](MicroBatchId id) {
      double sum = 0;
      for (std::int64_t j = 0; j < costs_.slices(); ++j)
        sum += costs_.least_duration(op_of(stage, kind, j, id)) + waited;
      return sum;
    };
    if (!members_.empty() && filled.count == std::ssize(members_) * costs_.slices()) {
      filled.work = 0;
      for (const MicroBatchId id : members_) filled.work += all(id);
    } else if (costs_.slices() > 1) {
      filled.work = static_cast<double>(filled.count / costs_.slices()) * all(lightest_);
    }
  }

  /// Arrival after an op and a message. `early` is the part of the op done before `start`.
  static Progression after(Progression start, double duration, Progression sent = {}, double early = 0) {
    return {start.first + (duration - early) + sent.first, std::max({start.step, duration, sent.step})};
  }

  static Progression spaced(Progression heads, double body) { return {heads.first, std::max(heads.step, body)}; }

  /// Follows the flow of a replica's micro-batches: forwards through all stages, then gradients back.
  void find_heads() {
    const std::size_t last = classes_.size() - 1;
    Progression heads;
    for (std::size_t s = 0; s <= last; ++s) {
      at(s, OpKind::Forward).heads = spaced(heads, at(s, OpKind::Forward).body);
      heads = after(heads, duration(s, OpKind::Forward), s < last ? message(s, true) : Progression{});
    }
    for (std::size_t s = last + 1; s-- > 0;) {
      // B and I need the gradient and the recomputed forward, which follows the first forward.
      const double again = recomputation(s);
      const Progression forward = after(at(s, OpKind::Forward).heads, duration(s, OpKind::Forward));
      heads = longer(heads, {forward.first + again, forward.step});
      for (const OpKind kind : {OpKind::Backward, OpKind::BackwardInput})
        at(s, kind).heads = spaced({heads.first - longest_recomputation(s), heads.step}, at(s, kind).body);
      const Progression split = after(heads, duration(s, OpKind::BackwardInput), {}, again);
      at(s, OpKind::BackwardWeight).heads = spaced(split, duration(s, OpKind::BackwardWeight));
      heads = after(heads, gradient_duration(s), s > 0 ? message(s - 1, false) : Progression{}, again);
    }
  }

  /// Tails start at the end of a blocking send.
  void give_tails(OpClass& to, Progression tails) {
    to.tails = spaced({std::max(0.0, tails.first - to.block), tails.step}, to.body);
  }

  /// Follows the flow against its direction: what must still happen after an op of each class.
  void find_tails() {
    Progression onward;  // after an input gradient, through the previous stages
    for (std::size_t s = 0; s < classes_.size(); ++s) {
      const Progression done{after_gradients_[s], 0};
      const Progression weight = after(done, duration(s, OpKind::BackwardWeight));
      give_tails(at(s, OpKind::BackwardWeight), done);
      give_tails(at(s, OpKind::Backward), longer(onward, done));
      give_tails(at(s, OpKind::BackwardInput), longer(onward, weight));
      const Progression least = has(s, OpKind::Backward) ? longer(onward, done) : longer(onward, weight);
      const bool is_last = s + 1 == classes_.size();
      // Only the last stage must recompute after the op's input, which is its own forward.
      onward = after(least, gradient_duration(s), is_last ? Progression{} : message(s, false),
                     is_last ? 0 : recomputation(s));
    }
    for (std::size_t s = classes_.size(); s-- > 0;) {
      give_tails(at(s, OpKind::Forward), onward);
      onward = after(onward, duration(s, OpKind::Forward), s > 0 ? message(s - 1, true) : Progression{});
    }
  }

  const Schedule& schedule_;
  const CostTable& costs_;
  ReplicaId replica_;
  const Counts* counts_;  // [stage]
  const std::vector<double>& after_gradients_;
  std::vector<MicroBatchId> members_;  // of the replica, if their work differs
  MicroBatchId lightest_;
  MicroBatchId heaviest_;
  std::vector<std::array<OpClass, kOpKinds>> classes_;
};

/// Makespan of Jackson's preemptive schedule. Ops of a class run in order, as earlier arrivals have longer tails.
double preemptive_makespan(const std::vector<OpClass>& classes) {
  std::vector<std::int64_t> next(classes.size(), 0);
  // [class]: what remains of its next op, which other ops may have interrupted.
  std::vector<double> left = mapped(classes, &OpClass::body);
  double now = 0;
  double makespan = 0;
  while (true) {
    std::size_t chosen = classes.size();
    double longest = -1;
    double arrival = kUnbounded;  // arrival time of the next op
    for (std::size_t c = 0; c < classes.size(); ++c) {
      if (next[c] == classes[c].count) continue;
      const double head = classes[c].head(next[c]);
      if (head > now) {
        arrival = std::min(arrival, head);
      } else if (const double tail = classes[c].tail(next[c]); tail > longest) {
        longest = tail;
        chosen = c;
      }
    }
    if (chosen == classes.size()) {
      if (arrival == kUnbounded) return makespan;
      now = arrival;
    } else if (now + left[chosen] <= arrival) {
      now += left[chosen];
      makespan = std::max(makespan, now + longest);
      left[chosen] = classes[chosen].body;
      ++next[chosen];
    } else {
      left[chosen] -= arrival - now;
      now = arrival;
    }
  }
}

/// Takes time linear in the classes: least head, all work, least tail.
double all_classes_bound(const std::vector<OpClass>& classes) {
  double head = kUnbounded;
  double tail = kUnbounded;
  double work = 0;
  double bound = 0;
  for (const OpClass& each : classes) {
    head = std::min(head, each.heads.first);
    tail = std::min(tail, each.tails.first);
    work += each.work;
    bound = std::max(bound, each.head(each.count - 1) + each.body + each.tails.first);
  }
  return classes.empty() ? 0 : std::max(bound, head + work + tail);
}

/// Chooses between the exact preemptive bound, which costs ops times classes, and the linear one.
double worker_bound(const std::vector<OpClass>& classes, std::int64_t ops, bool has_equal_ops) {
  const auto count = static_cast<std::int64_t>(classes.size());
  const bool quick = count <= kFewClasses || ops * count <= kManySteps;
  if (!quick) return all_classes_bound(classes);
  return has_equal_ops ? preemptive_makespan(classes)
                       : std::max(preemptive_makespan(classes), all_classes_bound(classes));
}

/// [stage]: time of its all-reduce and the longest update, which waits for all all-reduces. If steps overlap, only some
/// worker's update is certain to follow.
std::vector<double> after_gradients(const Schedule& schedule, const CostTable& costs) {
  std::vector<double> after(static_cast<std::size_t>(schedule.stages), 0);
  if (schedule.updates) return after;
  const auto updates = costs.updates(schedule);
  const double longest = costs.steps_overlap() ? *std::ranges::min_element(updates) : std::ranges::max(updates);
  for (std::size_t s = 0; s < after.size(); ++s)
    after[s] = costs.all_reduce(parameters_of(StageId(static_cast<std::int64_t>(s)))) + longest;
  return after;
}

}  // namespace

double work_of_ops(const Schedule& schedule, const CostTable& costs) {
  double work = 0;
  for (const auto& ops : schedule.workers)
    for (const Op& op : ops) work += costs.duration(op);
  return work;
}

double lower_bound(const Schedule& schedule, const CostTable& costs) {
  const auto stages = static_cast<std::size_t>(schedule.stages);
  const std::vector<Counts> counts = count_ops(schedule);
  // The flow assumes that every micro-batch passes all stages.
  if (counts.size() > kMaxCopies || !complete(counts, stages)) return busiest(schedule, costs);
  const auto after = after_gradients(schedule, costs);
  std::vector<std::vector<OpClass>> classes(schedule.workers.size());
  for (std::size_t r = 0; r < schedule.placement.num_replicas(); ++r) {
    const ReplicaId replica(static_cast<std::int64_t>(r));
    if (counts[r * stages][0] == 0) continue;
    const auto flow = Flow(schedule, costs, replica, &counts[r * stages], after).run();
    for (std::size_t s = 0; s < stages; ++s) {
      for (const OpClass& each : flow[s])
        if (each.count > 0) classes[schedule.placement.worker_of[r][s].index()].push_back(each);
    }
  }
  const std::int64_t ops = num_ops(schedule);
  double bound = 0;
  const bool has_equal_ops = costs.slices() == 1 && !costs.scale().has_unequal_work();
  for (const auto& of_worker : classes) bound = std::max(bound, worker_bound(of_worker, ops, has_equal_ops));
  return bound;
}

}  // namespace chimera
