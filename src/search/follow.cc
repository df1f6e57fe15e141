#include "search/follow.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/annealing.h"
#include "search/budget.h"
#include "search/evaluator.h"
#include "search/instance.h"
#include "search/layout.h"
#include "search/list_scheduling.h"
#include "search/makespan_bound.h"
#include "search/problem_forms.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

/// Most activations of stages that a worker has in flight.
double most_in_flight(const Schedule& schedule) {
  return static_cast<double>(peak_in_flight(schedule)) / static_cast<double>(schedule.slices);
}

SearchProblem problem_of(const Schedule& schedule, const CostModel& costs, double room) {
  SearchProblem problem{.layout = layout_of(schedule), .costs = costs, .split_backward = has_split_backwards(schedule)};
  problem.limits.push_back(
      {.flag = "the room of the healthy schedule",
       .size_of_stage = std::vector<double>(static_cast<std::size_t>(schedule.stages), 1),
       .room_of_worker = std::vector<double>(schedule.workers.size(), std::ceil(room * most_in_flight(schedule)))});
  return problem;
}

/// Time and earliest start of a micro-batch at each stage, on workers of speed 1.
std::vector<StageTime> stage_times(const Schedule& schedule, const CostModel& costs, bool is_split) {
  std::vector<StageTime> times;
  double before = 0;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCosts& stage = costs.stages[s];
    const double backward = is_split ? stage.input_gradient + stage.weight_gradient : stage.backward;
    const double again = costs.recompute.empty() ? 0 : costs.recompute[s];
    times.push_back({(stage.forward + backward + again) * schedule.micro_batch_scale, before});
    before += stage.forward * schedule.micro_batch_scale / static_cast<double>(schedule.slices);
  }
  return times;
}

/// Divides the times so that the mean stage takes three units for each slice, as make_detours() assumes. Returns the
/// unit.
double normalize(std::vector<StageTime>& times, std::int64_t slices) {
  double sum = 0;
  for (const StageTime& time : times) sum += time.ops;
  const double unit = sum / static_cast<double>(std::ssize(times) * 3 * slices);
  if (unit == 0) times.clear();
  for (auto& [ops, before] : times) {
    ops /= unit;
    before /= unit;
  }
  return unit;
}

}  // namespace

Schedule reordered(const Schedule& schedule, const CostModel& costs, std::int64_t effort, double room) {
  const SearchProblem problem = problem_of(schedule, costs, room);
  const Instance instance = make_instance(problem);
  const std::int64_t rules = std::clamp<std::int64_t>(effort / (100 * std::max(1, instance.ops)), 8, 48);
  Budget budget(std::nullopt, std::max<std::int64_t>(1, effort / std::max(1, instance.ops)));
  RandomSource random(0);
  Evaluator evaluator(instance);
  const double goal = least_makespan(instance) * (1 + kRounding);
  Solution best;
  const auto consider = [&](Orders orders) {
    budget.count();
    const double makespan = evaluator.makespan(orders);
    if (is_admissible(instance, orders)) replace_if_better(best, {std::move(orders), makespan, ""});
  };
  consider(to_orders(problem, schedule));
  for (const double window : {0.0, 0.5, 1.0}) {
    ListRule rule;
    rule.window = window;
    // Times the best order again, because ends() are those of the last order.
    (void)evaluator.makespan(best.orders);
    rule.model = evaluator.ends();
    consider(orders_by_rule(instance, rule, random));
  }
  for (std::int64_t i = 0; i < rules && best.makespan > goal; ++i)
    consider(orders_by_rule(instance, random_rule(instance, random), random));
  best = anneal(instance, std::move(best), goal, Phase(budget), random, [](const Solution&) {});
  Schedule found = to_schedule(problem, best.orders);
  found.name = schedule.name;
  found.groups = schedule.groups;
  return simulate(found, costs).makespan < simulate(schedule, costs).makespan ? found : schedule;
}

FollowedCosts follow_costs(const FollowTask& task) {
  DetourTask detours = task.detours;
  const Schedule healthy = in_all_groups(detours.healthy, detours.groups);
  CostModel costs = task.costs;
  const bool loses = std::ranges::any_of(detours.slow, [](const SlowWorker& each) { return each.speed == 0; });
  FollowedCosts result;
  CostModel even = costs;
  even.workers.clear();
  result.healthy_makespan = simulate(healthy, even).makespan;
  if (!loses) result.kept_makespan = simulate(healthy, costs).makespan;
  detours.times = stage_times(healthy, costs, has_split_backwards(healthy));
  const double unit_time = normalize(detours.times, healthy.slices);
  BalancedDetours found = balance_detours(detours, task.extra_copies);
  result.copies = found.copies;
  result.bound = found.detours.bound * unit_time;
  result.schedule = reordered(found.detours.schedule, costs, task.effort, task.room);
  result.makespan = simulate(result.schedule, costs).makespan;
  if (result.kept_makespan && *result.kept_makespan <= result.makespan) {
    result.schedule = healthy;
    result.makespan = *result.kept_makespan;
    result.copies.clear();
  }
  const double unit = static_cast<double>(workers_per_group(healthy)) / static_cast<double>(healthy.stages);
  result.peak_in_flight = most_in_flight(result.schedule) * unit * healthy.micro_batch_scale;
  return result;
}

}  // namespace chimera
