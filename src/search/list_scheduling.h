#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "search/annealing.h"
#include "search/instance.h"
#include "search/layout.h"

// List scheduling that may wait: a free worker takes the op that a rule ranks first, even one that is still on its way.

namespace chimera {

/// The schedules of all registered generators, with every scale method, that place the stages as the layout does and
/// deal each replica as many micro-batches: synchronous ones of full micro-batches. `shape` is what the layout was made
/// of. Their micro-batches may be numbered in another way.
[[nodiscard]] std::vector<Schedule> generated_starts(const Layout& layout, const PipelineShape& shape);

/// Ranks the ops that a worker may run next: the smallest number runs first. Of the k-th op of a lane of stage s it is
/// step[F, I (or B), W] + age * k - depth * s + patience * t + a random number below `noise`, where t is how much
/// later the op can start than the worker's first. Of ops that start at the same time on several workers the one with
/// the smallest number is started first: what it makes is then known to be on its way. Times are in mean durations of
/// the instance's ops.
struct ListRule {
  std::array<double, kLanesOfChain> step = {1, 0, 2};
  double age = 0.01;
  double depth = 0.001;
  double window = 0;  // the most that a worker waits for a better op
  double patience = 1;
  double noise = 0;
  std::vector<std::int32_t> credits = {};  // [chain]: most micro-batches in flight there, at least 1; empty: no limit
  std::vector<double> model = {};          // [op]: where given, this number ranks the op: when it ran in other orders
};

/// A random rule, out of the range that has proved useful.
[[nodiscard]] ListRule random_rule(const Instance& instance, RandomSource& random);

/// The orders that the rule makes: always complete, and within the instance's limits. On each worker the oldest
/// micro-batch that has not ended there (smallest position in its replica, then smallest replica) always finds room,
/// because all others together leave as much as any one needs. So the oldest of all always runs on, and then the next.
/// Requires the room that require_room() asks for.
[[nodiscard]] Orders orders_by_rule(const Instance& instance, const ListRule& rule, RandomSource& random);

}  // namespace chimera
