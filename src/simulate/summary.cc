#include "simulate/summary.h"

#include <algorithm>

#include "schedule/weight_versions.h"
#include "simulate/costs.h"
#include "simulate/steps.h"

namespace chimera {
namespace {

double period(const std::vector<double>& step_ends) {
  if (step_ends.size() < 2) return step_ends.empty() ? 0 : step_ends.front();
  // The middle step neither fills nor drains an asynchronous pipeline.
  const std::size_t middle = (step_ends.size() - 2) / 2;
  return step_ends[middle + 1] - step_ends[middle];
}

}  // namespace

Timeline empty_timeline(const Schedule& schedule) {
  Timeline timeline;
  timeline.workers.resize(schedule.workers.size());
  const std::vector<bool> holds = holds_a_stage(schedule.placement, schedule.workers.size());
  for (std::size_t w = 0; w < holds.size(); ++w) timeline.workers[w].lost = !holds[w];
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) timeline.workers[w].ops.resize(schedule.workers[w].size());
  return timeline;
}

// An asynchronous schedule has no flush, so a step ends when the last op of its micro-batches ends, even if ops of
// later steps ran before.
void end_steps_with_ops(const Schedule& schedule, std::int64_t steps, Timeline& timeline) {
  const std::int64_t per_step = micro_batches_per_step(schedule, steps);
  timeline.step_ends.resize(static_cast<std::size_t>(steps), 0);
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      double& end = timeline.step_ends[schedule.workers[w][i].micro_batch.index() / static_cast<std::size_t>(per_step)];
      end = std::max(end, timeline.workers[w].ops[i].end);
    }
  }
}

// Micro-batches in flight change only with the worker's own ops, so their order decides the peak, not the times.
void count_peaks(const Schedule& schedule, Timeline& timeline) {
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    WorkerTimeline& worker = timeline.workers[w];
    worker.peak_in_flight = peak_in_flight(schedule.workers[w]);
    worker.peak_stage_units =
        micro_batches_in_flight(schedule, worker) * stage_fraction(schedule) * schedule.micro_batch_scale;
    worker.peak_weight_versions = peak_weight_versions(schedule, w);
  }
}

// Lost workers have no ops. They would count as idle, so they are left out of the ratio.
void summarize_timeline(Timeline& timeline) {
  double busiest = 0;
  for (WorkerTimeline& worker : timeline.workers) {
    double until = 0;  // end of previous ops: the ops of a pair may overlap
    for (const TimedOp& op : worker.ops) {
      worker.busy += std::max(0.0, op.end - std::max(op.start, until));
      until = std::max(until, op.end);
    }
    if (!worker.ops.empty()) {
      worker.inner_idle = std::max(0.0, worker.ops.back().end - worker.ops.front().start - worker.busy);
      timeline.ops_end = std::max(timeline.ops_end, worker.ops.back().end);
    }
    if (!worker.updates.empty()) timeline.makespan = std::max(timeline.makespan, worker.updates.back().end);
    timeline.inner_bubble = std::max(timeline.inner_bubble, worker.inner_idle);
    busiest = std::max(busiest, worker.busy);
  }
  timeline.makespan = std::max(timeline.makespan, timeline.ops_end);
  timeline.makespan_bubble = timeline.makespan - busiest;
  double idle = 0;
  double area = 0;
  for (WorkerTimeline& worker : timeline.workers) {
    if (worker.lost) continue;
    worker.idle = timeline.makespan - worker.busy;
    idle += worker.idle;
    area += timeline.makespan;
  }
  timeline.bubble_ratio = area > 0 ? idle / area : 0;
  timeline.period = period(timeline.step_ends);
}

double peak_memory(const Explanation& explanation, std::size_t worker) {
  double peak = 0;
  for (const MemoryPoint& point : explanation.memory[worker]) peak = std::max(peak, point.amount);
  return peak;
}

}  // namespace chimera
