#pragma once

// Orders from which the search starts: schedules of generators (generate/), and list schedules. List scheduling
// simulates a step op by op: of the ops that can start soon, a worker runs the op with the smallest rank, a number that
// a ListRule computes. random_rule() makes different rules, so that the search has different starts. A *queue* has the
// ops of the same kind, stage and replica, and a *chain* is the queues of one stage and replica (search/instance.h).

#include <array>

#include "schedule/schedule.h"
#include "search/annealing.h"
#include "search/instance.h"
#include "search/layout.h"

namespace chimera {

/// Makes the schedules of all registered generators, and returns those that have the layout's placement and numbers of
/// micro-batches per replica. They are synchronous and do not halve micro-batches. Their micro-batches may have other
/// numbers; to_orders() (instance.h) ignores these. `shape` is the shape of the layout.
[[nodiscard]] std::vector<Schedule> generated_starts(const SearchLayout& layout, const PipelineShape& shape);

/// Rule that chooses a worker's next op. Of the ops that can start within `window` of the worker's earliest possible
/// start, the op with the smallest rank runs first. The rank of an op of stage s is
///
///     step[kind] + age * m - depth * s + patience * t + a random number below `noise`
///
/// Here m is the number of earlier micro-batches in its queue (with slices, m grows by a fraction for each slice), and
/// t is the time from the worker's earliest possible start to the start of this op. Times are in mean op durations.
struct ListRule {
  std::array<double, kQueuesOfChain> step = {1, 0, 2};  // [kind]: F, I (or B), W
  double age = 0.01;                                    // weight of m
  double depth = 0.001;                                 // weight of s
  double window = 0;                                    // maximum time that a worker waits for an op of smaller rank
  double patience = 1;                                  // weight of this wait (t) in the rank
  double noise = 0;                                     // limit of the random number
  // [chain]: maximum number of slices (or whole micro-batches) in flight, at least one micro-batch; empty: no limit
  std::vector<std::int32_t> credits = {};
  // [op]: ranks that replace the formula, usually the end times of the ops in other orders; empty: the formula
  std::vector<double> model = {};
};

/// Returns a rule with random weights that suit the instance.
[[nodiscard]] ListRule random_rule(const Instance& instance, RandomSource& random);

/// Returns the orders of a list schedule (generate/list_orders.h) by this rule, within the memory limits of the
/// workers. Requires limits that require_room() (instance.h) accepts.
[[nodiscard]] Orders orders_by_rule(const Instance& instance, const ListRule& rule, RandomSource& random);

}  // namespace chimera
