// A timeline has times, but neither messages nor reasons. Explainer derives them in three passes: send_all() sends
// every message again over the same links, explain_worker() walks along a worker and divides each gap between its
// activities by cause, and find_critical_path() goes back from the last event to the event that it waited for, and so
// on. A measured step brings its own messages, and gets the second pass only.

#include "simulate/explain.h"

#include <algorithm>
#include <utility>

#include "schedule/dependencies.h"
#include "simulate/cost_table.h"
#include "simulate/links.h"

namespace chimera {
namespace {

class Explainer {
 public:
  Explainer(const Schedule& schedule, const CostModel& model, const Timeline& timeline)
      : table_(schedule), costs_(schedule, model), timeline_(timeline), arrived_(table_.size()) {}

  Explanation run() {
    send_all();
    explain_workers();
    find_critical_path();
    return std::move(explanation_);
  }

  Explanation run_measured(std::vector<Message> messages) {
    // Results that are used on their own worker have no message.
    for (OpIndex op = 0; op < table_.size(); ++op) arrived_[op] = timed(op).end;
    for (const Message& message : messages) arrived_[index(message.from)] = message.arrived;
    explanation_.messages = std::move(messages);
    is_measured_ = true;
    explain_workers();
    return std::move(explanation_);
  }

 private:
  void explain_workers() {
    for (std::size_t w = 0; w < timeline_.workers.size(); ++w) {
      explanation_.bubbles.emplace_back();
      explain_worker(w);
      explanation_.all_reduces.push_back(timeline_.workers[w].all_reduces);
    }
  }

  /// Last input to arrive for an op or pair; kNoOp: no inputs.
  struct LastInput {
    OpIndex op = kNoOp;
    double arrived = -1;
  };

  const TimedOp& timed(OpIndex op) const {
    const std::size_t worker = table_.worker(op);
    return timeline_.workers[worker].ops[op - table_.first(worker)];
  }
  Place place(OpIndex op) const { return {table_.worker(op), op - table_.first(table_.worker(op))}; }
  OpIndex index(Place at) const { return table_.first(at.worker) + static_cast<OpIndex>(at.position); }

  /// Sends the messages again, in the order of ops: the timeline has no messages, but the same links give the same
  /// times.
  void send_all() {
    Links links(costs_);
    for (OpIndex op = 0; op < table_.size(); ++op) {
      const double ready = timed(op).end;
      arrived_[op] = ready;
      const OpIndex consumer = table_.consumer(table_.op(op));
      if (consumer == kNoOp || table_.worker(consumer) == table_.worker(op)) continue;
      const auto [sent, arrived] = links.send(table_.worker(op), table_.worker(consumer), table_.op(op), ready);
      arrived_[op] = arrived;
      explanation_.messages.push_back({place(op), place(consumer), sent, arrived});
    }
  }

  // Ties go to the first input, so that the critical path is the same on every machine.
  LastInput last_input(OpIndex op) const {
    LastInput last;
    for (const Op& each : table_.at_once(op, costs_.pairs())) {
      for (const OpIndex input : table_.inputs(each)) {
        if (input == kNoOp) continue;
        const double arrived = table_.worker(input) == table_.worker(op) ? timed(input).end : arrived_[input];
        if (arrived > last.arrived) last = {input, arrived};
      }
    }
    return last;
  }

  double released(OpIndex op) const { return costs_.blocking_sends() ? arrived_[op] : timed(op).end; }

  void wait(std::size_t worker, double& at, double to, IdleCause cause, OpIndex waits_for = kNoOp) {
    if (to <= at) return;
    auto& bubble = explanation_.bubbles[worker].emplace_back(Bubble{at, to, cause});
    if (waits_for != kNoOp) bubble.waits_for = place(waits_for);
    at = to;
  }

  /// The cause is Sync during its own all-reduces, else Imbalance while ops run elsewhere.
  void wait_for_update(std::size_t worker, double& at, const TimedUpdate& update) {
    const auto& sums = timeline_.workers[worker].all_reduces;
    for (auto sum = first_ending_after(sums, at); sum != sums.end() && sum->start < update.start; ++sum) {
      wait_for_others(worker, at, sum->start);
      wait(worker, at, std::min(sum->end, update.start), IdleCause::Sync);
    }
    wait_for_others(worker, at, update.start);
    wait(worker, at, update.end, IdleCause::Sync);
  }

  /// Relies on ascending ends: a worker runs one all-reduce at a time.
  static std::vector<TimedAllReduce>::const_iterator first_ending_after(const std::vector<TimedAllReduce>& sums,
                                                                        double time) {
    return std::partition_point(sums.begin(), sums.end(), [&](const TimedAllReduce& sum) { return sum.end <= time; });
  }

  void wait_for_others(std::size_t worker, double& at, double to) {
    wait(worker, at, std::min(to, timeline_.ops_end), IdleCause::Imbalance);
    wait(worker, at, to, IdleCause::Sync);
  }

  /// Walks along the worker's activities and fills each gap by its causes, from left to right. `at` is the end of what
  /// is explained so far.
  void explain_worker(std::size_t worker) {
    const WorkerTimeline& timeline = timeline_.workers[worker];
    if (timeline.lost) return;
    double at = 0;
    bool first = true;  // whether no op of the synchronous step, or of the run, came before
    auto update = timeline.updates.begin();
    for (std::size_t i = 0; i < timeline.ops.size(); ++i) {
      const OpIndex op = table_.first(worker) + static_cast<OpIndex>(i);
      for (; update != timeline.updates.end() && update->after == i; ++update) {
        wait_for_update(worker, at, *update);
        first = first || !table_.schedule().updates;
      }
      wait_for_input(worker, at, op, first ? IdleCause::WarmUp : IdleCause::Dependency);
      first = false;
      at = std::max(at, timeline.ops[i].end);
      // With blocking sends, the worker now waits for the arrival of the op's message; otherwise this adds nothing.
      const bool last = i + 1 == timeline.ops.size();
      wait(worker, at,
           last ? std::min(released(op), timeline_.makespan) : std::min(released(op), timeline.ops[i + 1].start),
           IdleCause::Latency, op);
    }
    for (; update != timeline.updates.end(); ++update) wait_for_update(worker, at, *update);
    wait_for_others(worker, at, timeline_.makespan);
  }

  void wait_for_input(std::size_t worker, double& at, OpIndex op, IdleCause until_made) {
    const double start = timed(op).start;
    if (start <= at) return;
    const LastInput input = last_input(op);
    if (input.op != kNoOp) {
      wait(worker, at, std::min(timed(input.op).end, start), until_made, input.op);
      wait(worker, at, std::min(input.arrived, start), IdleCause::Latency, input.op);
    }
    // The op is held back: a just-in-time forward, or time to handle messages.
    wait(worker, at, start, is_measured_ && input.op != kNoOp ? IdleCause::Latency : until_made, input.op);
  }

  void find_critical_path() {
    // Times are compared by equality: an activity that waited for another one starts at exactly the number at which the
    // other ended, because the simulator copies it.
    std::optional<Place> at = last_end();
    while (at) {
      explanation_.critical_path.push_back(*at);
      at = before(*at);
    }
    std::reverse(explanation_.critical_path.begin(), explanation_.critical_path.end());
  }

  /// Returns the op that ends last, or the op before the update that ends last.
  std::optional<Place> last_end() const {
    std::optional<Place> last;
    double latest = -1;
    for (std::size_t w = 0; w < timeline_.workers.size(); ++w) {
      const WorkerTimeline& worker = timeline_.workers[w];
      // An update between ops (asynchronous schedules) ends before the worker's last op.
      if (!worker.updates.empty() && worker.updates.back().after == worker.ops.size() &&
          worker.updates.back().end > latest) {
        latest = worker.updates.back().end;
        last = before_update(w, worker.updates.back());
      }
      if (!worker.ops.empty() && worker.ops.back().end > latest) {
        latest = worker.ops.back().end;
        last = Place{w, worker.ops.size() - 1};
      }
    }
    return last;
  }

  /// In a synchronous schedule, returns the op that launched the last all-reduce, or the last op of all workers.
  std::optional<Place> before_update(std::size_t worker, const TimedUpdate& update) const {
    if (!table_.schedule().updates) {
      const auto step = static_cast<std::size_t>(&update - timeline_.workers[worker].updates.data());
      for (std::size_t w = 0; w < timeline_.workers.size(); ++w) {
        const auto& sums = timeline_.workers[w].all_reduces;
        const auto next = first_ending_after(sums, update.start);
        if (next != sums.begin() && (next - 1)->end == update.start) return (next - 1)->launched_by;
        const std::size_t after = timeline_.workers[w].updates[step].after;
        if (after > 0 && released(table_.first(w) + static_cast<OpIndex>(after) - 1) == update.start)
          return Place{w, after - 1};
      }
    }
    if (update.after == 0) return std::nullopt;
    return Place{worker, update.after - 1};
  }

  /// Returns the op whose end allowed this one to start: of its own worker if it started right after that, else its
  /// last input.
  std::optional<Place> before(Place at) const {
    // The second op of a pair starts with the first one, so both have the same reason.
    if (at.position > 0 && table_.at_once(index(at) - 1, costs_.pairs()).size() > 1) --at.position;
    const double start = timed(index(at)).start;
    const WorkerTimeline& worker = timeline_.workers[at.worker];
    const auto later = std::partition_point(worker.updates.begin(), worker.updates.end(),
                                            [&](const TimedUpdate& update) { return update.after <= at.position; });
    if (later != worker.updates.begin() && (later - 1)->after == at.position) {
      if ((later - 1)->end == start) return before_update(at.worker, *(later - 1));
    } else if (at.position > 0 && released(index(at) - 1) == start) {
      return Place{at.worker, at.position - 1};
    }
    const LastInput input = last_input(index(at));
    if (input.op == kNoOp) return std::nullopt;
    return place(input.op);
  }

  OpTable table_;
  CostTable costs_;
  const Timeline& timeline_;
  std::vector<double> arrived_;  // [op]: arrival of its result at another worker, else its end
  bool is_measured_ = false;
  Explanation explanation_;
};

}  // namespace

Explanation explain(const Schedule& schedule, const CostModel& costs, const Timeline& timeline) {
  Explanation explanation = Explainer(schedule, costs, timeline).run();
  explanation.memory = memory_over_time(schedule, costs, timeline, explanation.messages);
  return explanation;
}

Explanation explain_measured(const Schedule& schedule, const Timeline& timeline, std::vector<Message> messages) {
  const CostModel no_costs = CostModel::uniform(schedule, {});
  Explanation explanation = Explainer(schedule, no_costs, timeline).run_measured(std::move(messages));
  explanation.memory = memory_over_time(schedule, no_costs, timeline, explanation.messages);
  return explanation;
}

}  // namespace chimera
