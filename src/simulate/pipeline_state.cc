// What runs for every op is in the header, where the clocks can inline it. Here is the rest: launches of all-reduces,
// the barrier at the end of a synchronous step, updates, and messages that leave a link.

#include "simulate/pipeline_state.h"

#include "core/error.h"
#include "simulate/cost_table.h"
#include "simulate/summary.h"

namespace chimera {
namespace {

/// Returns [step][worker]: where all-reduces are launched. They are placed by unit times, as training places them
/// before it knows real times; each step of several is placed as if it were alone.
std::vector<std::vector<std::vector<AllReduceStart>>> launches_of_steps(
    const OpTable& table, const std::vector<std::vector<StepRange>>& ranges, const CostTable& costs) {
  const Schedule& schedule = table.schedule();
  const auto launches = [&](const OpTable& step) {
    return place_all_reduces(step, unit_start_times(step, costs.pairs()), costs.sums());
  };
  if (schedule.updates || !costs.has_all_reduces()) return {};
  if (ranges.size() == 1) return {launches(table)};
  std::vector<std::vector<std::vector<AllReduceStart>>> all;
  const std::int64_t per_step = schedule.micro_batches / static_cast<std::int64_t>(ranges.size());
  for (std::size_t step = 0; step < ranges.size(); ++step) {
    const Schedule part = extract_step(schedule, per_step, static_cast<std::int64_t>(step), ranges[step]);
    all.push_back(launches(OpTable(part)));
  }
  return all;
}

}  // namespace

PipelineState::PipelineState(const Schedule& schedule, std::vector<std::vector<StepRange>> ranges,
                             const CostTable& costs, bool tracks_messages)
    : table_(schedule),
      ranges_(std::move(ranges)),
      costs_(costs),
      launches_(launches_of_steps(table_, ranges_, costs)),
      sums_(schedule, costs, timeline_),
      update_times_(costs.updates(schedule)),
      updates_(schedule),
      copies_(schedule, costs),
      workers_(schedule.workers.size()),
      has_messages_(tracks_messages || costs.has_traffic()),
      arrived_(table_.size(), kNever) {
  timeline_ = empty_timeline(schedule);
  if (!schedule.updates) timeline_.step_ends.assign(ranges_.size(), 0);
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    timeline_.workers[w].ops.assign(schedule.workers[w].size(), {.start = 0, .end = kNever});
    ops_.push_back(timeline_.workers[w].ops.data());
  }
  for (std::size_t w = 0; w < workers_.size(); ++w) begin_step(w);
}

void PipelineState::begin_step(std::size_t w) {
  Worker& worker = workers_[w];
  const StepRange& range = ranges_[worker.step][w];
  worker.end = static_cast<std::uint32_t>(range.end);
  worker.launched = 0;
  worker.has_ended_ops = false;
  // A worker without ops still comes to the barrier at the end of the step.
  if (range.begin == range.end) return;
  find_inputs(worker, w);
  launch_sums(w, worker.free);
}

/// Launches the all-reduces that come before the worker's next op.
void PipelineState::launch_sums(std::size_t w, double now) {
  if (launches_.empty()) return;
  Worker& worker = workers_[w];
  const auto& launches = launches_[worker.step][w];
  for (; worker.launched < launches.size(); ++worker.launched) {
    const auto& [group, after] = launches[worker.launched];
    // `after` is a position in the ops of this step; -1 is before all of them.
    const std::size_t ops_before = ranges_[worker.step][w].begin + static_cast<std::size_t>(after + 1);
    if (ops_before > worker.position) return;
    sums_.launch(w, group, now, ops_before);
  }
}

void PipelineState::end_sum(ParameterGroupId group, double now) {
  sums_.end(group, now);
  for (const WorkerId worker : sums_.holders(group)) reach_barrier(worker.index());
}

// A worker is at the barrier after its last op and its last all-reduce, whichever ends later.
void PipelineState::reach_barrier(std::size_t w) {
  const Worker& worker = workers_[w];
  if (costs_.steps_overlap() || !worker.has_ended_ops || !sums_.is_free(w)) return;
  barrier_.last = std::max({barrier_.last, worker.free, sums_.free_since(w)});
  if (++barrier_.workers < workers_.size()) return;
  barrier_.workers = 0;
  ++barrier_.steps;
  barrier_.passed = barrier_.last;
}

/// An asynchronous update all-reduces first. The timeline counts both as the update.
Activity PipelineState::begin_own_update(std::size_t w, double now) {
  Worker& worker = workers_[w];
  const StageId stage = updated_stage(w);
  const ParameterGroupId group = parameters_of(stage);
  worker.free = kNever;
  // Called twice: first for the all-reduce, then, at its end, for the update itself.
  if (!worker.update_start) {
    worker.update_start = now;
    return {.work = ActivityKind::OwnSum, .time = costs_.all_reduce(group)};
  }
  const double start = *worker.update_start;
  const Place place{w, *worker.update_after};
  const std::size_t after = place.position + 1;
  if (now > start)
    // All-reduces that take no time are left out of the timeline, as in a synchronous step.
    timeline_.workers[w].all_reduces.push_back(
        {.group = group, .start = start, .end = now, .launched_by = place, .after = after});
  timeline_.workers[w].updates.push_back({.after = after, .start = start, .end = now});
  return {.work = ActivityKind::Update, .time = costs_.optimizer(stage)};
}

void PipelineState::finish_update(std::size_t w, double now) {
  Worker& worker = workers_[w];
  timeline_.workers[w].updates.back().end = now;
  // An update between ops. Only the update of a synchronous step ends the step.
  if (worker.update_after) {
    worker.update_after.reset();
    worker.update_start.reset();
    return;
  }
  timeline_.step_ends[worker.step] = std::max(timeline_.step_ends[worker.step], now);
  if (++worker.step < ranges_.size()) begin_step(w);
}

/// With blocking sends, the worker is free again when the last of its messages has arrived.
void PipelineState::arrive(OpIndex made, double now) {
  Worker& sender = workers_[table_.worker(made)];
  arrived_[made] = now + costs_.delay(table_.op(made));
  sender.sent = std::max(sender.sent, arrived_[made]);
  if (costs_.blocking_sends() && --sender.sending == 0) sender.free = sender.sent;
}

void PipelineState::require_ends() const {
  for (const Worker& worker : workers_) {
    if (worker.position == worker.end) continue;
    throw ScheduleError("schedule '" + table_.schedule().name +
                        "' cannot run: it has a deadlock, ops that wait for each other; run `chimera check` on it");
  }
}

}  // namespace chimera
