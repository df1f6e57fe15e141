#pragma once

// Schedules that follow the costs: if a worker is slow or lost, other holders of its stages run a part of its ops or
// all of them, and the order of the ops suits the resulting times, slow links and unequal micro-batches (--slow,
// --without). make_detours() (generate/detours.h) chooses the paths of micro-batches and a first order for equal times
// of ops; reordered() then improves the order for the real costs.

#include "search/extra_copies.h"
#include "simulate/costs.h"

namespace chimera {

/// Input of follow_costs().
struct FollowTask {
  DetourTask detours;  // Its `times` are ignored; they follow from `costs`
  /// Costs of the ops of all groups; CostModel::workers has the factors of all workers, also of `detours.slow`
  CostModel costs;
  std::int64_t extra_copies = 0;     // Maximum number of further copies of stages
  std::int64_t effort = 40'000'000;  // Ops to time while the order is improved
  double room = 1.25;                // Maximum activations of a worker, as a multiple of the first order's peak
};

/// Result of follow_costs(). Times are simulated with the costs of the task.
struct FollowedCosts {
  Schedule schedule;
  std::vector<ExtraCopy> copies;  // Further copies that the schedule uses
  double healthy_makespan = 0;    // If no worker were slow or lost
  // Of the healthy order with slow workers; empty if a worker is lost
  std::optional<double> kept_makespan = std::nullopt;
  double makespan = 0;
  double bound = 0;           // Lower bound for the chosen paths (Routes::bound in generate/routes.h)
  double peak_in_flight = 0;  // Of the worker with most, in stage units
};

/// Returns a schedule for slow and lost workers. If no worker is lost and no schedule found is faster than the healthy
/// one with the slow workers (FollowedCosts::kept_makespan), returns the healthy one. Deterministic. Throws ConfigError
/// as balance_detours() does, and if a cost is invalid (CostTable).
[[nodiscard]] FollowedCosts follow_costs(const FollowTask& task);

/// Returns the schedule with the fastest order of its ops that was found by list scheduling and annealing from its
/// present order, at these costs; a worker holds at most `room` times the activations of the present peak. `effort` is
/// the number of ops to time. Returns the schedule itself if no faster order is found. Deterministic.
[[nodiscard]] Schedule reordered(const Schedule& schedule, const CostModel& costs, std::int64_t effort,
                                 double room = 1.25);

}  // namespace chimera
