#pragma once

// Start orders for the search: schedules of generators, and list schedules. A list schedule is built op by op; each
// worker runs the op with the smallest rank among those that can start soon. Random ranks give varied starts.

#include <array>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "search/annealing.h"
#include "search/instance.h"
#include "search/layout.h"

namespace chimera {

/// Returns the schedules of all registered generators, with each of their rules, that match the layout's placement and
/// micro-batches per replica: synchronous, with full micro-batches, possibly renumbered. `shape` is the layout's.
[[nodiscard]] std::vector<Schedule> generated_starts(const Layout& layout, const PipelineShape& shape);

/// Rank of the ops that a worker may run next; the smallest runs first. The k-th op of a lane of stage s has rank
/// step[F, I (or B), W] + age * k - depth * s + patience * t + a random number below `noise`, where t is its delay
/// after the worker's earliest possible start. The rank also decides between workers at equal start. Times are in mean
/// op durations.
struct ListRule {
  std::array<double, kLanesOfChain> step = {1, 0, 2};
  double age = 0.01;
  double depth = 0.001;
  double window = 0;  // longest wait for a better op
  double patience = 1;
  double noise = 0;
  // [chain]: maximum number of slices in flight, at least those of a micro-batch; empty: no limit
  std::vector<std::int32_t> credits = {};
  std::vector<double> model = {};  // [op]: replaces the rank, usually by ends in other orders
};

[[nodiscard]] ListRule random_rule(const Instance& instance, RandomSource& random);

/// Schedules ops by rank, within the limits. Always completes, given the memory checked by require_room(): on each
/// worker, the oldest unfinished micro-batch (smallest position in its replica, then smallest replica) fits, because
/// the others leave enough memory for any.
[[nodiscard]] Orders orders_by_rule(const Instance& instance, const ListRule& rule, RandomSource& random);

}  // namespace chimera
