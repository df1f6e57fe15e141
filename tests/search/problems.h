#pragma once
// Search problems, and a brute-force solver.

#include <algorithm>
#include <optional>
#include <vector>

#include "check/check_schedule.h"
#include "core/error.h"
#include "core/random.h"
#include "search/evaluator.h"
#include "search/instance.h"
#include "search/layout.h"
#include "search/search.h"
#include "simulate/simulate.h"

namespace chimera::testing {

/// A problem of equal stages; `share` is (F, I, W) of a worker.
inline SearchProblem alike(PlacementKind kind, const PipelineShape& shape, const StageCosts& share, double latency = 0,
                           double max_in_flight = 0) {
  SearchProblem problem;
  problem.layout = make_search_layout(kind, shape);
  problem.costs = CostModel::uniform(without_ops(problem.layout), share, latency);
  if (max_in_flight > 0) problem.limits.push_back(limit_in_flight(problem.layout, max_in_flight, "--max-in-flight"));
  return problem;
}

inline StageCosts split(double forward, double input_gradient, double weight_gradient) {
  return {forward, input_gradient + weight_gradient, input_gradient, weight_gradient};
}

/// The case of most published figures: D = 8, (1, 1.3, 0.7), 9 stage units per worker.
inline SearchProblem eight_stages(std::int64_t micro_batches, std::int64_t pipelines, double latency) {
  return alike(PlacementKind::Bidirectional, {.stages = 8, .micro_batches = micro_batches, .pipelines = pipelines},
               split(1, 1.3, 0.7), latency, 9);
}

/// Random costs for every stage and op in steps of 1/8; sometimes a latency and a limit.
inline SearchProblem by_chance(PlacementKind kind, const PipelineShape& shape, bool split_backward,
                               std::uint64_t seed) {
  const CounterRandom random(seed, "problem");
  std::uint64_t next = 0;
  const auto cost = [&] { return static_cast<double>(1 + random.below(next++, 16)) / 8; };
  SearchProblem problem = alike(kind, shape, {});
  for (StageCosts& stage : problem.costs.stages) stage = {cost(), cost(), cost(), cost()};
  problem.costs.latency = random.below(next++, 2) == 0 ? 0 : cost() / 2;
  problem.split_backward = split_backward;
  const auto room = static_cast<double>(1 + random.below(next++, 3));
  if (room < 3) problem.limits.push_back(limit_in_flight(problem.layout, room, "--max-in-flight"));
  return problem;
}

/// Most stage units that any worker holds at once, counted from the schedule.
inline double peak_units(const Schedule& schedule) {
  double peak = 0;
  for (const auto& ops : schedule.workers) {
    double held = 0;
    for (const Op& op : ops) {
      const double unit = static_cast<double>(schedule.workers.size()) / static_cast<double>(schedule.stages) /
                          static_cast<double>(schedule.slices);
      if (op.kind == OpKind::Forward) held += unit;
      peak = std::max(peak, held);
      if (gives_weight_gradient(op.kind)) held -= unit;
    }
  }
  return peak;
}

/// Finds the shortest makespan by trying every order of every worker's ops, with micro-batches in any order. Shares
/// only simulate() with the search. Suitable for about a dozen ops.
class EveryOrder {
 public:
  explicit EveryOrder(const SearchProblem& problem) : problem_(problem), schedule_(without_ops(problem.layout)) {}

  double shortest_makespan() {
    std::vector<std::vector<Op>> ops(schedule_.workers.size());
    for (std::size_t r = 0; r < problem_.layout.micro_batches.size(); ++r) {
      for (const MicroBatchId id : problem_.layout.micro_batches[r]) {
        for (std::int64_t s = 0; s < schedule_.stages; ++s) {
          const ReplicaId replica(static_cast<std::int64_t>(r));
          auto& list = ops[schedule_.placement.worker(replica, StageId(s)).index()];
          for (std::int64_t slice = 0; slice < schedule_.slices; ++slice) {
            for (const OpKind kind : kinds()) {
              list.push_back({kind, replica, StageId(s), id});
              list.back().slice = static_cast<std::int16_t>(slice);
            }
          }
        }
      }
    }
    for (std::size_t w = 0; w < ops.size(); ++w) {
      auto& orders = orders_.emplace_back();
      std::vector<Op> order;
      extend(order, ops[w], orders);
    }
    return shortest(0);
  }

 private:
  std::vector<OpKind> kinds() const {
    if (!problem_.split_backward) return {OpKind::Forward, OpKind::Backward};
    return {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight};
  }

  /// All orders of a worker within the limits in which each micro-batch's ops at a stage follow each other.
  void extend(std::vector<Op>& order, const std::vector<Op>& all, std::vector<std::vector<Op>>& orders) {
    if (order.size() == all.size()) return orders.push_back(order);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto taken = [&](const Op& op) { return std::find(order.begin(), order.end(), op) != order.end(); };
      if (taken(all[i]) || (all[i].kind != OpKind::Forward && !taken(all[i - 1]))) continue;
      if (const auto other = other_slice(all[i]); other && !taken(*other)) continue;
      order.push_back(all[i]);
      Schedule one = without_ops(problem_.layout);
      one.workers[0] = order;
      const bool fits = problem_.limits.empty() || peak_units(one) <= problem_.limits[0].room_of_worker[0] + 1e-9;
      if (fits) extend(order, all, orders);
      order.pop_back();
    }
  }

  /// Returns the op of the same stage that must run first because it makes or takes keys and values.
  std::optional<Op> other_slice(Op op) const {
    op.slice = static_cast<std::int16_t>(op.slice + (op.kind == OpKind::Forward ? -1 : 1));
    const bool exists = op.slice >= 0 && op.slice < schedule_.slices && op.kind != OpKind::BackwardWeight;
    return exists ? std::optional(op) : std::nullopt;
  }

  double shortest(std::size_t worker) {
    if (worker == orders_.size()) {
      try {
        return simulate(schedule_, problem_.costs).makespan;
      } catch (const ScheduleError&) {  // a cycle
        return kDeadlocked;
      }
    }
    double best = kDeadlocked;
    for (const auto& order : orders_[worker]) {
      schedule_.workers[worker] = order;
      best = std::min(best, shortest(worker + 1));
    }
    return best;
  }

  const SearchProblem& problem_;
  Schedule schedule_;
  std::vector<std::vector<std::vector<Op>>> orders_;  // [worker]
};

/// Fails the test unless the schedule is valid, keeps the limit in stage units and has the given makespan.
inline void expect_sound(const SearchProblem& problem, const Schedule& schedule, double makespan) {
  const auto violations = check(schedule);
  EXPECT_TRUE(violations.empty()) << violations.front().message;
  EXPECT_NEAR(simulate(schedule, problem.costs).makespan, makespan, 1e-9 * makespan);
  if (!problem.limits.empty()) EXPECT_LE(peak_units(schedule), problem.limits[0].room_of_worker[0] + 1e-9);
}

}  // namespace chimera::testing
