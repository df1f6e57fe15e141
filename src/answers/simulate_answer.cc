// answer() makes the schedule, moves the ops of lost and slow workers, simulates the result and the schedules to draw
// beside it, and checks the limits last, because they are about the schedule that comes out. The other functions write
// a panel as text, part by part.

#include "answers/simulate_answer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "check/check_limits.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "passes/unroll.h"
#include "render/timeline_json.h"
#include "simulate/permute.h"
#include "simulate/simulate.h"
#include "simulate/summary.h"

namespace chimera {
namespace {

Timeline timeline_of(const Schedule& schedule, const CostModel& costs, const SimulateRequest& request) {
  SharedCores shared;
  // The simulation has one of W equal groups, which gets its part of the cores.
  if (request.cores)
    shared.cores = static_cast<double>(*request.cores) / static_cast<double>(request.costs.data_parallel);
  if (!request.contention.empty())
    shared.contention = {
        .ops_by_sums = request.contention[0], .sums_by_ops = request.contention[1], .transfers = request.contention[2]};
  return simulate(schedule, costs, {.steps = request.steps, .cores = shared});
}

CostModel costs_of(const Schedule& schedule, const SimulateRequest& request) {
  return request.pairs.with_time(request.costs.costs_of(schedule, request.steps));
}

Schedule all_steps(const Schedule& step, const SimulateRequest& request) {
  request.schedule.require_few(static_cast<double>(request.steps) * static_cast<double>(num_ops(step)));
  return request.steps == 1 ? step : unroll(step, request.steps);
}

/// Returns infinity if the schedule exceeds the limits.
double makespan_of(const Schedule& step, const SimulateRequest& request) {
  // fastest() then prefers an order within the limits. require_limit() reports that no order is.
  if (!check_limits(step, request.limits.limits()).empty()) return std::numeric_limits<double>::infinity();
  const Schedule schedule = all_steps(step, request);
  return timeline_of(schedule, costs_of(schedule, request), request).makespan;
}

/// Fills `costs.micro_batches` for all groups.
std::vector<std::int64_t> permutation_of(const Schedule& step, CostModel& costs) {
  if (costs.micro_batches.empty())
    reject("--permute-micro-batches needs the work of each micro-batch: micro_batches in --costs FILE");
  // The file may have the work of one group, which all groups repeat.
  if (std::ssize(costs.micro_batches) < step.micro_batches) {
    const std::vector<double> group = costs.micro_batches;
    for (std::int64_t g = 1; g < step.groups; ++g) std::ranges::copy(group, std::back_inserter(costs.micro_batches));
  }
  return permuted_micro_batches(step, costs);
}

/// `workers` replaces the factors of workers unless it is empty.
Panel simulated_panel(const Schedule& step, const SimulateRequest& request, const std::vector<double>& workers = {},
                      std::vector<std::int64_t>* micro_batch_of_place = nullptr) {
  const Schedule schedule = all_steps(step, request);
  CostModel costs = costs_of(schedule, request);
  if (!workers.empty()) costs.workers = workers;
  if (request.permute_micro_batches) {
    const std::vector<std::int64_t> permutation = permutation_of(step, costs);
    costs.micro_batches = work_of_places(costs.micro_batches, permutation);
    if (micro_batch_of_place != nullptr) *micro_batch_of_place = permutation;
  }
  Timeline timeline = timeline_of(schedule, costs, request);
  // Sums of times up to 1e100 stay finite for any usual number of ops.
  if (!std::isfinite(timeline.makespan))
    reject("simulate: the makespan is too large for a number; use a larger unit of time");
  Panel panel = panel_of(schedule, std::move(timeline), costs);
  // Times of a worker's share come without sizes of messages and gradients.
  if (!request.costs.file.is_given()) panel.totals.message_bytes = panel.totals.all_reduce_bytes = std::nullopt;
  return panel;
}

void require_limit(const SimulateRequest& request, const Panel& panel) {
  const auto violations = check_limits(panel.schedule, request.limits.limits());
  if (violations.empty()) return;
  const bool in_flight = violations.front().kind == ViolationKind::OverInFlight;
  reject("{}: {}", in_flight ? "--max-in-flight" : "--memory", violations.front().message);
}

std::string workers_as_text(const Panel& panel) {
  const auto& [timeline, explanation, in_bytes] = std::tie(panel.timeline, panel.explanation, panel.memory_in_bytes);
  std::string text = fmt::format("{:>6} {:>10} {:>10} {:>10} {:>15} {:>15} {:>15}{}\n", "worker", "busy", "idle",
                                 "inner idle", "peak in flight", "in stage units", "weight versions",
                                 in_bytes ? fmt::format(" {:>12}", "peak bytes") : "");
  for (std::size_t w = 0; w < timeline.workers.size(); ++w) {
    const WorkerTimeline& worker = timeline.workers[w];
    const double in_flight = micro_batches_in_flight(panel.schedule, worker);
    if (worker.lost) {
      text += fmt::format("{:>6} {:>10}\n", w, "lost");
      continue;
    }
    text += fmt::format("{:>6} {:>10.6g} {:>10.6g} {:>10.6g} {:>15} {:>15.6g} {:>15}", w, worker.busy, worker.idle,
                        worker.inner_idle, in_flight, worker.peak_stage_units, worker.peak_weight_versions);
    if (in_bytes) text += fmt::format(" {:>12.6g}", peak_memory(explanation, w));
    text += "\n";
  }
  return text;
}

std::string causes_as_text(const Timeline& timeline, const Explanation& explanation) {
  const auto idle = idle_by_cause(explanation.bubbles);
  const auto survivors = std::ranges::count(timeline.workers, false, &WorkerTimeline::lost);
  const double area = timeline.makespan * static_cast<double>(survivors);
  std::string text = "idle time of all workers, by cause\n";
  for (int c = 0; c < kIdleCauses; ++c) {
    const double time = idle[static_cast<std::size_t>(c)];
    text += fmt::format("{:>12} {:>10.6g} {:>6.1f} %\n", to_text(static_cast<IdleCause>(c)), time,
                        area > 0 ? 100 * time / area : 0);
  }
  return text;
}

std::string critical_path_as_text(const Panel& panel) {
  const auto& path = panel.explanation.critical_path;
  if (path.empty()) return "critical path: no op\n";
  const auto op = [&](const Place& place) { return panel.schedule.workers[place.worker][place.position]; };
  const auto time = [&](const Place& place) { return panel.timeline.workers[place.worker].ops[place.position]; };
  std::map<OpKind, int> counts;
  double in_ops = 0;
  for (const Place& place : path) {
    ++counts[op(place).kind];
    in_ops += time(place).end - time(place).start;
  }
  const auto kinds =
      mapped(counts, [](const auto& entry) { return fmt::format("{} {}", entry.second, letter(entry.first)); });
  // The path ends at the last op; all-reduces and updates may follow it.
  const double after = panel.timeline.makespan - time(path.back()).end;
  // Rounding may make the difference of sums slightly negative.
  const double between = std::max(0.0, panel.timeline.makespan - after - in_ops);
  return fmt::format(
      "critical path: {:.6g} in {}, {:.6g} between them, {:.6g} after them; {} on worker {} to {} on {}\n", in_ops,
      fmt::join(kinds, " and "), between, after, to_text(op(path.front()), panel.schedule.slices), path.front().worker,
      to_text(op(path.back()), panel.schedule.slices), path.back().worker);
}

std::string steps_as_text(const Timeline& timeline) {
  if (timeline.step_ends.size() < 2) return "";
  // The ends of further steps follow from the time between two of them.
  constexpr std::size_t kMax = 8;
  const std::span ends(timeline.step_ends);
  return fmt::format("{}, one every {:.6g}; they end at {:.6g}{}\n", counted(ends.size(), "step"), timeline.period,
                     fmt::join(ends.first(std::min(kMax, ends.size())), " "), ends.size() > kMax ? " ..." : "");
}

std::string as_text(const Panel& panel, const TextStyle& style) {
  const Timeline& timeline = panel.timeline;
  std::string text = to_text(panel.schedule, timeline, style);
  text += fmt::format("\nmakespan {:.6g}, bubble ratio {:.4f}, lower bound {:.6g}\n", timeline.makespan,
                      timeline.bubble_ratio, timeline.lower_bound);
  text += fmt::format("inner bubble {:.6g}, makespan bubble {:.6g}\n", timeline.inner_bubble, timeline.makespan_bubble);
  if (timeline.makespan > timeline.ops_end)
    text += fmt::format("all-reduces and updates add {:.6g} after the last op\n", timeline.makespan - timeline.ops_end);
  text += steps_as_text(timeline) + critical_path_as_text(panel);
  text += workers_as_text(panel);
  return text + causes_as_text(timeline, panel.explanation);
}

}  // namespace

void SimulateRequest::visit(Door& door) {
  door.object("schedule", [this](Door& fields) { schedule.visit(fields); });
  pairs.visit(door);
  lost.visit(door);
  costs.visit(door);
  pairs.visit_time(door);
  door.field(
      {"steps", "number of consecutive training steps; asynchronous schedules do not flush between them (default 1)",
       "N", 1},
      steps);
  door.field({"permute_micro_batches",
              "place micro-batches of unequal work (micro_batches in --costs) where a step is fastest"},
             permute_micro_batches);
  door.field({"cores", "cores that all workers share (default: each worker has its own core)", "N", 1}, cores);
  door.field(
      {"contention",
       "slowdown when work overlaps on a worker: of an op during an all-reduce; of an all-reduce during an op; of a "
       "message or all-reduce per other concurrent transfer (1: they divide the bandwidth) (default: 0 0 0)",
       "OPS SUMS TRANSFERS", 0, 0, nullptr, 3},
      contention);
  limits.visit(door, "schedules above the limit are rejected (default: no limit)");
  door.group("Output");
  schedule.visit_with(door);
}

Simulation answer(const SimulateRequest& asked) {
  SimulateRequest request = asked;
  // CostRequest refuses groups that change nothing: they matter for all-reduces and for shared cores.
  request.costs.shared_cores = request.cores.has_value();
  // A schedule without lost workers contains all groups.
  const std::int64_t groups = !request.lost.is_given() ? 1 : std::exchange(request.costs.data_parallel, 1);
  const MakeSchedule make =
      fastest(request.schedule.shape, request.pairs, [&](const Schedule& step) { return makespan_of(step, request); });
  const Schedule healthy = request.schedule.make_valid(make, request.pairs);
  Simulation simulation;
  std::vector<Schedule> schedules = request.schedule.others(healthy, make);
  simulation.followed = request.lost.apply_to(healthy, groups, [&](const Schedule& schedule) {
    return request.pairs.with_time(request.costs.costs_of(schedule));
  });
  const FollowedSchedule& followed = simulation.followed;
  // The schedules beside it stay healthy: they are for comparison.
  simulation.panels.push_back(
      simulated_panel(followed.schedule, request, followed.costs.workers, &simulation.micro_batch_of_place));
  for (const Schedule& schedule : schedules) simulation.panels.push_back(simulated_panel(schedule, request));
  // From here on, the list serves only for the notes about fields without effect.
  schedules.push_back(followed.schedule);
  require_limit(request, simulation.panels.front());
  if (std::ranges::all_of(schedules, [](const Schedule& schedule) { return schedule.slices == 1; }))
    simulation.notes = request.costs.unused_without_slices();
  if (request.pairs.time && std::ranges::none_of(schedules, has_pairs)) simulation.notes.emplace_back(kNoPairs);
  return simulation;
}

std::string simulation_json(const Simulation& simulation) {
  std::string more;
  if (simulation.followed.kept_makespan)
    more += fmt::format(", \"kept_makespan\": {}", json_number(*simulation.followed.kept_makespan));
  if (!simulation.micro_batch_of_place.empty())
    more += fmt::format(", \"micro_batch_of_place\": [{}]", fmt::join(simulation.micro_batch_of_place, ", "));
  if (simulation.followed.bound) more += fmt::format(", \"bound\": {}", json_number(*simulation.followed.bound));
  const Panel& panel = simulation.panels.front();
  return to_json(panel.schedule, panel.timeline, panel.explanation, more);
}

std::string simulate_text(const Simulation& simulation, const TextStyle& style) {
  const std::vector<Panel>& panels = simulation.panels;
  std::string places;
  if (!simulation.micro_batch_of_place.empty())
    places = fmt::format("micro-batch in each place: {}\n", fmt::join(simulation.micro_batch_of_place, " "));
  if (panels.size() == 1) return as_text(panels.front(), style) + places + simulation.followed.summary;
  std::string text;
  for (const Panel& panel : panels) text += panel.title + "\n" + as_text(panel, style) + "\n";
  return text + comparison_table(panels) + places + simulation.followed.summary;
}

}  // namespace chimera
