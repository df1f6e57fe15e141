// simulate() drives a PipelineState by one of two clocks: OwnCores, which is here, or the events of shared_cores.cc.
// From the times it then computes the ends of steps, the peaks, the totals and the lower bound.

#include "simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reject.h"
#include "core/signals.h"
#include "schedule/dependencies.h"
#include "simulate/cost_table.h"
#include "simulate/links.h"
#include "simulate/lower_bound.h"
#include "simulate/pipeline_state.h"
#include "simulate/steps.h"
#include "simulate/summary.h"

namespace chimera {

Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline) {
  const OpTable table(schedule);
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<OpIndex> forwards;
  for (OpIndex op = 0; op < table.size(); ++op) {
    const bool together = costs.pair && table.op(op).paired;  // its backward would have to move, too
    if (table.op(op).kind == OpKind::Forward && !together) forwards.push_back(op);
  }
  // Descending starts: the ops that limit a forward start later, so they move first.
  std::sort(forwards.begin(), forwards.end(), [&](OpIndex a, OpIndex b) { return timed(a).start > timed(b).start; });
  for (const OpIndex op : forwards) {
    const OpIndex next = op + 1;
    const OpIndex consumer = table.consumer(table.op(op));
    double end = std::numeric_limits<double>::infinity();
    if (next != table.first(table.worker(op) + 1)) end = timed(next).start;
    if (consumer != kNoOp) {
      const double latency = table.worker(consumer) == table.worker(op) ? 0 : costs.latency;
      end = std::min(end, timed(consumer).start - latency);
    }
    // Nothing follows the op: no later time would be more just in time than any other.
    if (!std::isfinite(end)) continue;
    TimedOp& moved = timed(op);
    const double delay = std::max(0.0, end - moved.end);
    moved = {moved.start + delay, moved.end + delay};
  }
  return timeline;
}

namespace {

void require_between(const char* what, double value, double least, double most) {
  if (!(value >= least && value <= most)) reject("{}: {} is not from {} to {}", what, value, least, most);
}

void require_valid(const SharedCores& cores) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const Contention& contention = cores.contention;
  if (!(cores.cores > 0)) reject("cores: {} is not a number above 0", cores.cores);
  require_between("computing share of all-reduces", cores.all_reduce_share, 0, 1);
  require_between("cost of switching", cores.switching, 0, kLargest);
  for (const double share : {contention.ops_by_sums, contention.sums_by_ops, contention.transfers,
                             contention.node_transfers, contention.ops_by_receives})
    require_between("contention", share, 0, kLargest);
  for (const double gain : {contention.sums_overlap, contention.idle_gain})
    require_between("gain by contention", gain, 0, 0.99);
}

/// The clock of workers that do not slow each other down: an activity ends its own time after its start. So a worker
/// runs ahead until its next op lacks an input, and resumes when the input is made. Takes time linear in the ops.
class OwnCores {
 public:
  explicit OwnCores(PipelineState& state)
      : state_(state), waiting_(state.table().size(), 0), next_waiting_(state.num_workers(), 0) {}

  void run() {
    for (std::size_t w = state_.num_workers(); w-- > 0;) ready_.push_back(w);
    // Each round of the outer loop is a step of a synchronous schedule. Its inner loop ends when every worker waits for
    // the all-reduces and the updates at the end of the step.
    while (!ready_.empty()) {
      while (!ready_.empty()) {
        const std::size_t worker = ready_.back();
        ready_.pop_back();
        advance(worker);
      }
      end_step();
    }
  }

 private:
  void advance(std::size_t w) {
    const auto send = [this](OpIndex made, std::size_t to, double ready) {
      return links_.send(state_.table().worker(made), to, state_.table().op(made), ready).arrived;
    };
    for (double now = state_.ready(w); now < kNever; now = state_.ready(w)) {
      throw_if_interrupted();
      const std::optional<Activity> next = state_.begin_next(w, now);
      if (!next) continue;
      const OpIndex first = state_.first_op(w);
      state_.finish(next->work, w, now + next->time, send);
      for (OpIndex made = first; made < state_.first_op(w); ++made) resume_waiting(made);
    }
    // The worker is put on the list of the op that it waits for, and resumes when that op is made.
    const OpIndex input = state_.missing_input(w);
    if (input == kNoOp) return;
    next_waiting_[w] = waiting_[input];
    waiting_[input] = static_cast<std::uint32_t>(w) + 1;
  }

  void resume_waiting(OpIndex made) {
    for (std::uint32_t waiter = waiting_[made]; waiter != 0; waiter = next_waiting_[waiter - 1])
      ready_.push_back(waiter - 1);
  }

  /// Ends the all-reduces; then the updates of all workers are ready.
  void end_step() {
    AllReduceQueues& sums = state_.sums();
    // The end of an all-reduce lets its workers begin their next one.
    for (auto begun = sums.begin_ready(); !begun.empty(); begun = sums.begin_ready())
      for (const auto& [group, start] : begun) state_.end_sum(group, start + state_.costs().all_reduce(group));
    for (std::size_t w = state_.num_workers(); w-- > 0;)
      if (state_.ready(w) < kNever) ready_.push_back(w);
  }

  PipelineState& state_;
  Links links_{state_.costs()};
  std::vector<std::uint32_t> waiting_;       // [op]: 1 + a worker that waits for it; 0: none
  std::vector<std::uint32_t> next_waiting_;  // [worker]: 1 + the next worker that waits for the same op
  std::vector<std::size_t> ready_;           // workers that can run
};

double lower_bound_on(const SharedCores& cores, const Schedule& schedule, const CostTable& costs) {
  const double bound = lower_bound(schedule, costs);
  if (!std::isfinite(cores.cores)) return bound;
  const double all_cores = cores.cores * static_cast<double>(cores.nodes.count());
  // An op is fastest if it runs alone, so the work of all ops shrinks at most by that factor.
  const double fastest = 1 - cores.contention.idle_gain * idle_share(1, cores.cores);
  return fastest * std::max(bound, work_of_ops(schedule, costs) / all_cores);
}

}  // namespace

Timeline simulate(const Schedule& schedule, const CostModel& costs, const SimulationOptions& options) {
  require_valid(options.cores);
  const CostTable table(schedule, costs);
  const auto ranges = step_ranges(schedule, schedule.updates ? 1 : options.steps);
  PipelineState state(schedule, ranges, table, options.cores.contention.any());
  options.cores.are_shared() ? run_on_shared_cores(state, options.cores) : OwnCores(state).run();
  state.require_ends();
  // What follows does not depend on the clock.
  Timeline timeline = state.take_timeline();
  if (schedule.updates) end_steps_with_ops(schedule, options.steps, timeline);
  count_peaks(schedule, timeline);
  summarize_timeline(timeline);
  // Rounding can exceed the makespan.
  timeline.lower_bound = std::min(lower_bound_on(options.cores, schedule, table), timeline.makespan);
  return timeline;
}

}  // namespace chimera
