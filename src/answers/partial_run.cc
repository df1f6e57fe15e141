#include "answers/partial_run.h"

#include <algorithm>

#include "schedule/dependencies.h"
#include "simulate/summary.h"

namespace chimera::playground {
namespace {

std::vector<std::size_t> time_running(const OpTable& table, const CostTable& costs, Timeline& timeline) {
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<double> free(timeline.workers.size(), 0);
  return visit_in_dependency_order(table, [&](OpIndex op) {
    double start = free[table.worker(op)];
    for (const OpIndex input : table.inputs(table.op(op))) {
      if (input != kNoOp) start = std::max(start, timed(input).end);
    }
    timed(op) = {start, start + costs.duration(table.op(op))};
    free[table.worker(op)] = timed(op).end;
  });
}

}  // namespace

PartialRun run_as_far_as_possible(const Schedule& schedule, const CostModel& costs) {
  const OpTable table(schedule);
  const CostTable durations(schedule, costs);
  Timeline timeline = empty_timeline(schedule);
  const std::vector<std::size_t> visited = time_running(table, durations, timeline);
  double reached = 0;
  for (const WorkerTimeline& worker : timeline.workers) {
    for (const TimedOp& op : worker.ops) reached = std::max(reached, op.end);
  }
  for (std::size_t w = 0; w < visited.size(); ++w) {
    double time = reached;
    for (std::size_t i = visited[w]; i < timeline.workers[w].ops.size(); ++i) {
      const double end = time + durations.duration(schedule.workers[w][i]);
      timeline.workers[w].ops[i] = {time, end};
      time = end;
    }
    timeline.makespan = std::max(timeline.makespan, std::max(time, reached));
  }
  timeline.ops_end = timeline.makespan;
  Panel panel{
      .title = schedule.name, .schedule = schedule, .timeline = std::move(timeline), .explanation = {}, .totals = {}};
  return {std::move(panel), visited};
}

}  // namespace chimera::playground
