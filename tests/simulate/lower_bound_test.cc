// Compares the lower bound with the exact optimum, found by trying all orders.

#include "simulate/lower_bound.h"
#include "simulate/cost_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/random.h"
#include "simulate/simulate.h"
#include "support/schedules.h"

namespace chimera {
namespace {

constexpr double kTiny = 1e-9;

/// Splits every B into I, then W.
Schedule split(Schedule schedule) {
  for (auto& ops : schedule.workers) {
    std::vector<Op> halves;
    for (Op op : ops) {
      op.kind = op.kind == OpKind::Backward ? OpKind::BackwardInput : op.kind;
      halves.push_back(op);
      if (op.kind != OpKind::BackwardInput) continue;
      op.kind = OpKind::BackwardWeight;
      halves.push_back(op);
    }
    ops = halves;
  }
  return schedule;
}

/// The best makespan over all orders of each worker's ops.
double optimum(Schedule schedule, const CostModel& costs, std::size_t worker = 0) {
  if (worker == schedule.workers.size()) {
    try {
      return simulate(schedule, costs).makespan;
    } catch (const ScheduleError&) {
      return std::numeric_limits<double>::infinity();
    }
  }
  double best = std::numeric_limits<double>::infinity();
  auto& ops = schedule.workers[worker];
  std::vector<std::size_t> order(ops.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto original = ops;
  do {
    for (std::size_t i = 0; i < order.size(); ++i) ops[i] = original[order[i]];
    best = std::min(best, optimum(schedule, costs, worker + 1));
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

/// Searches for an order faster than a limit through all active schedules; one of them is optimal (Giffler and
/// Thompson, 1960). Takes the worker on which the earliest possible end of a next op lies, and branches over its ops
/// that can begin before that end. Micro-batches of one replica are alike, so each stage takes them in ascending order.
class ActiveSchedules {
 public:
  ActiveSchedules(const Schedule& schedule, const CostModel& costs) : schedule_(schedule), costs_(costs) {
    for (const auto& ids : micro_batches_of_replicas(schedule)) counts_.push_back(ids.size());
    const bool halves = std::any_of(schedule.workers[0].begin(), schedule.workers[0].end(),
                                    [](const Op& op) { return op.kind == OpKind::BackwardWeight; });
    kinds_ = halves ? std::vector{OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}
                    : std::vector{OpKind::Forward, OpKind::Backward};
    for (std::size_t r = 0; r < counts_.size(); ++r) {
      for (std::int64_t s = 0; s < schedule.stages; ++s) {
        for (const OpKind kind : kinds_) ends_[{r, s, kind}] = {};
      }
    }
    free_.assign(schedule.workers.size(), 0);
    work_.assign(schedule.workers.size(), 0);
    for (const auto& [key, ends] : ends_)
      work_[worker(key)] += static_cast<double>(counts_[key.replica]) * duration(key);
  }

  bool has_faster_than(double limit) {
    for (std::size_t w = 0; w < free_.size(); ++w) {
      if (free_[w] + work_[w] >= limit) return false;
    }
    std::vector<Candidate> candidates = ready();
    if (candidates.empty()) return true;
    for (const Candidate& c : candidates) {
      if (c.start + path_from(c.key) >= limit) return false;
    }
    const Candidate first = *std::min_element(candidates.begin(), candidates.end(),
                                              [](const auto& a, const auto& b) { return a.end < b.end; });
    for (const Candidate& c : candidates) {
      if (worker(c.key) == worker(first.key) && c.start <= first.end && run(c, limit)) return true;
    }
    return false;
  }

 private:
  struct Key {
    std::size_t replica = 0;
    std::int64_t stage = 0;
    OpKind kind = OpKind::Forward;
    auto operator<=>(const Key&) const = default;
  };
  struct Candidate {
    Key key;
    double start = 0;
    double end = 0;
  };

  std::size_t worker(const Key& key) const {
    return schedule_.placement.worker_of[key.replica][static_cast<std::size_t>(key.stage)].index();
  }
  double duration(const Key& key) const { return costs_.stages[static_cast<std::size_t>(key.stage)].of(key.kind); }
  OpKind gradient() const { return kinds_[1]; }

  bool run(const Candidate& c, double limit) {
    const std::size_t w = worker(c.key);
    const double free = std::exchange(free_[w], c.end);
    work_[w] -= duration(c.key);
    ends_[c.key].push_back(c.end);
    const bool found = has_faster_than(limit);
    ends_[c.key].pop_back();
    work_[w] += duration(c.key);
    free_[w] = free;
    return found;
  }

  /// Keys that the next op of `key` needs first.
  std::vector<Key> needs(const Key& key) const {
    const auto [r, s, kind] = key;
    if (kind == OpKind::BackwardWeight) return {{r, s, gradient()}};
    if (kind == OpKind::Forward) return s == 0 ? std::vector<Key>{} : std::vector<Key>{{r, s - 1, OpKind::Forward}};
    std::vector<Key> keys = {{r, s, OpKind::Forward}};
    if (s + 1 < schedule_.stages) keys.push_back({r, s + 1, gradient()});
    return keys;
  }

  std::vector<Candidate> ready() const {
    std::vector<Candidate> candidates;
    for (const auto& [key, ends] : ends_) {
      const std::size_t k = ends.size();
      if (k == counts_[key.replica]) continue;
      double start = free_[worker(key)];
      bool is_ready = true;
      for (const Key& need : needs(key)) {
        const auto& done = ends_.at(need);
        is_ready = is_ready && done.size() > k;
        if (is_ready) start = std::max(start, done[k] + (worker(need) == worker(key) ? 0 : costs_.latency));
      }
      if (is_ready) candidates.push_back({key, start, start + duration(key)});
    }
    return candidates;
  }

  double path_from(const Key& key) const {
    double rest = 0;
    for (const auto& [later, ends] : ends_) {
      const auto needed = needs(later);
      if (std::find(needed.begin(), needed.end(), key) == needed.end()) continue;
      rest = std::max(rest, (worker(later) == worker(key) ? 0 : costs_.latency) + path_from(later));
    }
    return duration(key) + rest;
  }

  const Schedule& schedule_;
  const CostModel& costs_;
  std::vector<std::size_t> counts_;  // micro-batches of each replica
  std::vector<OpKind> kinds_;
  std::map<Key, std::vector<double>> ends_;  // of the finished ops
  std::vector<double> free_;
  std::vector<double> work_;  // remaining work of each worker
};

/// Random costs from 1 to 5 in steps of 1/2.
CostModel random_costs(const Schedule& schedule, std::uint64_t seed) {
  const CounterRandom random(seed, "costs");
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t range) { return 0.5 * static_cast<double>(random.below(drawn++, range)); };
  CostModel costs;
  for (std::int64_t s = 0; s < schedule.stages; ++s) {
    StageCosts stage{1 + draw(9), 0, 1 + draw(9), 1 + draw(9)};
    stage.backward = stage.input_gradient + stage.weight_gradient;
    costs.stages.push_back(stage);
  }
  costs.latency = draw(4);
  return costs;
}

TEST(LowerBoundTest, TheSearchFindsTheOptimumOfAllOrders) {
  const std::vector<Schedule> schedules = {find_generator("1f1b").generate({2, 2}),
                                           find_generator("chimera").generate({2, 2}),
                                           split(find_generator("1f1b").generate({3, 1}))};
  for (const Schedule& schedule : schedules) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const CostModel costs = random_costs(schedule, seed);
      const double best = optimum(schedule, costs);
      EXPECT_FALSE(ActiveSchedules(schedule, costs).has_faster_than(best - kTiny));
      EXPECT_TRUE(ActiveSchedules(schedule, costs).has_faster_than(best + kTiny));
      EXPECT_LE(simulate(schedule, costs).lower_bound, best + kTiny);
    }
  }
}

bool has(const Schedule& schedule, OpKind kind) {
  const auto& ops = schedule.workers[0];
  return std::any_of(ops.begin(), ops.end(), [&](const Op& op) { return op.kind == kind; });
}

/// Every synchronous schedule with D N <= 12, if its backwards are either all whole or all split.
std::vector<Schedule> tiny_schedules() {
  std::vector<Schedule> schedules;
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::small_shapes(generator.name, 4)) {
      if (shape.stages * shape.micro_batches > 12 || shape.scale != ScaleMethod::Direct) continue;
      const Schedule schedule = generator.generate(shape);
      const bool both = has(schedule, OpKind::Backward) && has(schedule, OpKind::BackwardWeight);
      if (schedule.updates || schedule.slices > 1 || both || schedule.stages * schedule.micro_batches > 12) continue;
      schedules.push_back(schedule);
      if (has(schedule, OpKind::Backward)) schedules.push_back(split(schedule));
    }
  }
  return schedules;
}

TEST(LowerBoundTest, NoOrderIsFaster) {
  std::uint64_t seed = 0;
  for (const Schedule& schedule : tiny_schedules()) {
    for (int round = 0; round < 3; ++round) {
      const CostModel costs = random_costs(schedule, ++seed);
      const double bound = lower_bound(schedule, CostTable(schedule, costs));
      EXPECT_FALSE(ActiveSchedules(schedule, costs).has_faster_than(bound - kTiny))
          << schedule.name << " S=" << schedule.stages << " N=" << schedule.micro_batches << " seed " << seed;
    }
  }
}

TEST(LowerBoundTest, HoldsForSlowWorkersAndUnequalMicroBatches) {
  const CounterRandom random(63, "factors");
  std::uint64_t next = 0;
  for (int i = 0; i < 6; ++i) {
    const Schedule schedule = find_generator("chimera").generate(default_shape(find_generator("chimera"), 2, 2));
    CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2), 0.1);
    for (auto* const factors : {&costs.workers, &costs.micro_batches}) {
      for (int k = 0; k < 2; ++k) factors->push_back(0.5 + 0.25 * static_cast<double>(random.below(next++, 8)));
    }
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny);
    costs.micro_batches = {1, 1};
    CostModel without = costs;
    without.micro_batches.clear();
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny);
    EXPECT_DOUBLE_EQ(lower_bound(schedule, CostTable(schedule, costs)),
                     lower_bound(schedule, CostTable(schedule, without)));
  }
  // A worker's work is exact, although ops of a kind take different times.
  const Schedule schedule = find_generator("1f1b").generate(default_shape(find_generator("1f1b"), 1, 3));
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  costs.micro_batches = {0.5, 1, 4};
  costs.workers = {2};
  EXPECT_DOUBLE_EQ(lower_bound(schedule, CostTable(schedule, costs)), 2 * 3 * 5.5);
}

TEST(LowerBoundTest, HoldsIfSomeBackwardsAreSplit) {  // as in DualPipe
  Schedule schedule = split(find_generator("1f1b").generate({2, 2}));
  for (auto& ops : schedule.workers) {
    std::erase_if(ops, [](const Op& op) { return op.kind == OpKind::BackwardWeight && op.micro_batch.value() == 0; });
    for (Op& op : ops) {
      if (op.kind == OpKind::BackwardInput && op.micro_batch.value() == 0) op.kind = OpKind::Backward;
    }
  }
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const CostModel costs = random_costs(schedule, seed);
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny) << seed;
  }
}

TEST(LowerBoundTest, IsTightForChimeraWithWholeBackward) {
  for (const std::int64_t d : {4, 8, 16}) {
    const Timeline timeline = testing::timed(find_generator("chimera").generate({d, d}), 1, 2);
    EXPECT_EQ(timeline.lower_bound, timeline.makespan) << d;
  }
}

TEST(LowerBoundTest, ReachesTheBoundOfSplitBackward) {  // N (F+I+W) + (D/2 - 1) F
  for (const std::int64_t d : {4, 8}) {
    const Schedule schedule = split(find_generator("chimera").generate({d, d}));
    EXPECT_EQ(testing::timed(schedule, 1, 2).lower_bound, static_cast<double>(d * 3 + d / 2 - 1));
  }
}

TEST(LowerBoundTest, CountsMessagesSumsAndUpdates) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  const double bare = simulate(schedule, costs).lower_bound;
  costs.all_reduce = AllReduceCosts{.seconds = {3, 3, 3, 3}};
  costs.optimizer = {0.5, 0.5, 0.5, 0.5};
  const Timeline timeline = simulate(schedule, costs);
  EXPECT_EQ(timeline.lower_bound, bare + 3 + 2 * 0.5);
  EXPECT_LE(timeline.lower_bound, timeline.makespan);
}

TEST(LowerBoundTest, WithManyClassesIsHeadPlusWorkPlusTail) {  // 512 on a worker, times 131,072 ops
  const Timeline timeline =
      testing::timed(find_generator("chimera").generate({.stages = 256, .micro_batches = 256, .pipelines = 256}), 1, 2);
  EXPECT_EQ(timeline.lower_bound, 256 * 3);
  EXPECT_EQ(timeline.makespan, 256 * 3);  // pure data parallelism
}

TEST(LowerBoundTest, OfAnIncompleteScheduleIsItsWork) {
  Schedule schedule = find_generator("1f1b").generate({2, 3});
  schedule.workers[1].pop_back();
  EXPECT_EQ(testing::timed(schedule, 1, 2).lower_bound, 9);
}

TEST(LowerBoundTest, HoldsWithRecomputation) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const CounterRandom random(seed, "recompute");
    Schedule schedule = find_generator(seed % 3 == 0 ? "chimera" : "1f1b").generate({2, 2});
    if (seed % 3 == 1) schedule = split(find_generator("1f1b").generate({3, 1}));
    CostModel costs = random_costs(schedule, seed);
    for (std::int64_t s = 0; s < schedule.stages; ++s)
      costs.recompute.push_back(static_cast<double>(random.below(static_cast<std::uint64_t>(s), 4)));
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny) << seed;
  }
}

/// Costs of slices of any lengths, with recomputation and, for some seeds, links and copies.
CostModel sliced_costs(const Schedule& schedule, std::uint64_t seed) {
  const CounterRandom random(seed, "slices");
  CostModel costs = random_costs(schedule, seed);
  costs.slices.attention = 0.25 * static_cast<double>(random.below(0, 5));
  if (seed % 2 == 0) {
    for (std::int64_t j = 0; j <= schedule.slices; ++j) {
      const double x = static_cast<double>(j) / static_cast<double>(schedule.slices);
      costs.slices.bounds.push_back(seed % 4 == 0 ? x * x : x);
    }
  }
  const auto boundaries = static_cast<std::size_t>(schedule.stages - 1);
  for (std::int64_t s = 0; s < schedule.stages; ++s)
    costs.recompute.push_back(static_cast<double>(random.below(static_cast<std::uint64_t>(s) + 1, 3)));
  if (seed % 3 != 0) return costs;
  costs.links = LinkCosts{.alpha = 0.5, .beta = 0.5, .bytes = std::vector<double>(boundaries, 4)};
  costs.links->copies.assign(boundaries, 0.25);
  costs.blocking_sends = seed % 5 == 0;
  return costs;
}

TEST(LowerBoundTest, HoldsForSlices) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1, .slices = 2});
    const CostModel costs = sliced_costs(schedule, seed);
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny) << seed;
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto count = static_cast<std::int64_t>(seed);
    Schedule schedule =
        find_generator(seed % 2 == 0 ? "1f1b" : "gpipe")
            .generate({.stages = 1 + count % 5, .micro_batches = 1 + count % 4, .slices = 2 + count % 3});
    if (seed % 3 == 0) schedule = split(schedule);
    const CostModel costs = sliced_costs(schedule, seed);
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), simulate(schedule, costs).makespan + kTiny) << seed;
  }
}

TEST(LowerBoundTest, HoldsForOverlappingSteps) {
  const Schedule schedule = find_generator("1f1b").generate({2, 2});  // Worker 1 ends 2 before worker 0
  CostModel costs = CostModel::uniform(schedule, {1, 2, 1, 1});
  costs.optimizer = {0, 3};
  costs.steps_overlap = true;
  EXPECT_EQ(simulate(schedule, costs).makespan, 10);
  EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), 10);
}

TEST(LowerBoundTest, HoldsForLinksAndBlockingSends) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const CounterRandom random(seed, "links");
    const Schedule schedule = find_generator(seed % 2 == 0 ? "1f1b" : "chimera").generate({2, 2});
    CostModel costs = random_costs(schedule, seed);
    costs.links = LinkCosts{0.5, 0.5, {static_cast<double>(random.below(0, 8))}};
    costs.blocking_sends = seed % 3 == 0;
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny) << seed;
    costs.links->bursts = {static_cast<double>(random.below(1, 5))};
    EXPECT_LE(lower_bound(schedule, CostTable(schedule, costs)), optimum(schedule, costs) + kTiny) << seed;
  }
}

}  // namespace
}  // namespace chimera
