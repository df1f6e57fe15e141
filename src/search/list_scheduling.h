#pragma once

// Start orders for the search: schedules of generators, and list schedules. A list schedule is built op by op. Each
// worker runs the op with the smallest rank (ListRule) among the ops that can start soon. random_rule() makes different
// rules, so that the search has different starts. Chains and lanes are explained in search/instance.h.

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

/// Rule that chooses a worker's next op. Of the ops that can start within `window` of the worker's earliest possible
/// start, the op with the smallest rank runs first. The rank of an op of stage s is
///
///     step[kind] + age * m - depth * s + patience * t + a random number below `noise`
///
/// Here m is the number of earlier micro-batches in its lane (a fraction within slices), and t is the time from the
/// worker's earliest possible start to the start of this op. If ops of two workers can start at the same time, the op
/// with the smaller rank is scheduled first. Times are in mean op durations.
struct ListRule {
  std::array<double, kLanesOfChain> step = {1, 0, 2};  // [kind]: F, I (or B), W
  double age = 0.01;
  double depth = 0.001;
  double window = 0;  // longest wait for an op of smaller rank
  double patience = 1;
  double noise = 0;
  // [chain]: maximum number of slices in flight, at least the slices of one micro-batch; empty: no limit
  std::vector<std::int32_t> credits = {};
  std::vector<double> model = {};  // [op]: ranks instead of the formula, usually end times in other orders
};

[[nodiscard]] ListRule random_rule(const Instance& instance, RandomSource& random);

/// Schedules all ops by rank, within the memory limits of the workers. Requires limits that require_room() accepts.
/// The result is always complete, because each worker reserves memory for its oldest unfinished micro-batch: smallest
/// position in its replica, then smallest replica. Other micro-batches get only the remaining memory.
[[nodiscard]] Orders orders_by_rule(const Instance& instance, const ListRule& rule, RandomSource& random);

}  // namespace chimera
