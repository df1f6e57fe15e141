#include "check/wait_cycle.h"

#include <gtest/gtest.h>

#include <random>

#include "check/check_schedule.h"
#include "support/schedules.h"

namespace chimera {
namespace {

constexpr int kFar = 1'000;

/// The fewest waits of a cycle, from all distances: 1 from an op to its inputs, 0 to its predecessor.
int fewest_waits(const OpTable& table) {
  const std::size_t size = table.size();
  std::vector<std::vector<int>> distance(size, std::vector<int>(size, kFar));
  for (OpIndex op = 0; op < size; ++op) {
    if (op > table.first(table.worker(op))) distance[op][op - 1] = 0;
    for (const OpIndex input : table.inputs(table.op(op))) {
      if (input != kNoOp) distance[op][input] = std::min(distance[op][input], 1);
    }
  }
  for (std::size_t via = 0; via < size; ++via) {
    for (std::size_t from = 0; from < size; ++from) {
      for (std::size_t to = 0; to < size; ++to)
        distance[from][to] = std::min(distance[from][to], distance[from][via] + distance[via][to]);
    }
  }
  int fewest = kFar;
  for (std::size_t op = 0; op < size; ++op) fewest = std::min(fewest, distance[op][op]);
  return fewest;
}

TEST(WaitCycleTest, HasTheFewestWaitsOfAllCycles) {
  std::mt19937_64 random(1);
  std::vector<int> found(6, 0);  // number of cycles with that many waits
  for (const char* name : {"1f1b", "gpipe", "chimera"}) {
    for (int round = 0; round < 150; ++round) {
      Schedule schedule = find_generator(name).generate({4, 4});
      for (int swaps = 0; swaps < 3; ++swaps) {
        auto& ops = schedule.workers[random() % 4];
        std::swap(ops[random() % ops.size()], ops[random() % ops.size()]);
      }
      const OpTable table(schedule);
      const auto cycle = shortest_wait_cycle(table, visit_in_dependency_order(table, [](OpIndex) {}));
      const int fewest = fewest_waits(table);
      ASSERT_EQ(cycle.empty() ? kFar : static_cast<int>(cycle.size()), fewest) << name << ", round " << round;
      for (std::size_t i = 0; i < cycle.size(); ++i) {
        const Wait& next = cycle[(i + 1) % cycle.size()];
        EXPECT_EQ(cycle[i].input.worker, next.op.worker);
        EXPECT_GE(cycle[i].input.position, next.op.position);
      }
      ++found[std::min<std::size_t>(cycle.size(), found.size() - 1)];
    }
  }
  EXPECT_GT(found[1], 10);
  EXPECT_GT(found[2], 10);
}

TEST(WaitCycleTest, FindsAShortCycleBeyondTheStuckOps) {
  // Workers 0, 1 and 2 are stuck before a cycle of three waits; a cycle of two waits lies later.
  Schedule schedule{.name = "by hand", .stages = 3, .micro_batches = 2, .placement = {}, .workers = {}};
  schedule.placement.worker_of = {{WorkerId(0), WorkerId(1), WorkerId(2)}};
  const auto op = [](OpKind kind, std::int64_t s, std::int64_t m) {
    return Op{kind, ReplicaId(0), StageId(s), MicroBatchId(m)};
  };
  constexpr OpKind F = OpKind::Forward;
  constexpr OpKind B = OpKind::Backward;
  schedule.workers = {{op(F, 0, 0), op(B, 0, 0), op(F, 0, 1), op(B, 0, 1)},
                      {op(F, 1, 0), op(B, 1, 0), op(F, 1, 1), op(B, 1, 1)},
                      {op(F, 2, 1), op(B, 2, 1), op(F, 2, 0), op(B, 2, 0)}};
  const auto violations = check(schedule);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].message,
            "deadlock, a cycle of 2 waits: worker 1 cannot run 1B0 (its op 1) before 2B0 (op 3 of worker 2); "
            "worker 2 cannot run 2F1 (its op 0) before 1F1 (op 2 of worker 1)");
}

TEST(WaitCycleTest, AMillionStuckOpsTakeTheStatedEffortAtMost) {
  Schedule schedule = find_generator("1f1b").generate({64, 8192});
  for (auto& ops : schedule.workers) std::reverse(ops.begin(), ops.end());
  const auto violations = check(schedule);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].places.size(), 2U);
}

TEST(ShortestCycleTest, SkipsLongerCycles) {
  EXPECT_EQ(shortest_cycle({{1}, {2}, {3, 4}, {0}, {2, 5}, {}}), (std::vector<std::uint32_t>{2, 4}));
  EXPECT_EQ(shortest_cycle({{1, 2}, {2}, {}}), std::vector<std::uint32_t>{});
  EXPECT_EQ(shortest_cycle({{1}, {1}}), std::vector<std::uint32_t>{1});
}

}  // namespace
}  // namespace chimera
