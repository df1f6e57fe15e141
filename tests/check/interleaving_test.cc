// check() decides from one run. These tests try all interleavings of small programs, and orders of ops that overtake
// each other on their channels.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "check/interpreter.h"
#include "check/wait_table.h"
#include "passes/lower.h"
#include "support/schedules.h"

namespace chimera {
namespace {

constexpr ChannelDiscipline kInterleavedDisciplines[] = {ChannelDiscipline::PerDirection,
                                                         ChannelDiscipline::SerialPair};

bool gets_stuck(const std::vector<Violation>& violations) {
  return std::any_of(violations.begin(), violations.end(),
                     [](const Violation& violation) { return violation.kind == ViolationKind::Deadlock; });
}

TEST(InterleavingTest, AllRunsOfATinyProgramEndInTheStateThatCheckFinds) {
  constexpr std::size_t kMaxStates = 200'000;
  std::size_t programs = 0;
  std::size_t stuck = 0;
  for (const auto& [name, shape] : std::vector<std::pair<const char*, PipelineShape>>{
           {"gpipe", {2, 2}}, {"1f1b", {2, 3}}, {"1f1b", {3, 2}}, {"chimera", {2, 2}}, {"chimera", {2, 4}}}) {
    for (const ChannelDiscipline discipline : kInterleavedDisciplines) {
      for (std::uint64_t seed = 0; seed < 60; ++seed) {
        Program program = lower(find_generator(name).generate(shape), {.discipline = discipline});
        std::mt19937_64 random(seed);
        for (std::uint64_t swaps = seed % 3; swaps > 0; --swaps) {  // swaps two instructions of one worker
          auto& list = program.workers[random() % program.workers.size()];
          std::swap(list[random() % list.size()], list[random() % list.size()]);
        }
        const testing::WaitTable waits(program, discipline);
        const auto ends = testing::final_states(waits, kMaxStates);
        ASSERT_EQ(ends.size(), 1U) << name << ", seed " << seed;
        EXPECT_EQ(*ends.begin(), testing::final_state(waits, seed));
        const auto violations = check(program, discipline);
        EXPECT_EQ(violations.empty(), testing::plays(program, discipline, kMaxStates)) << name << ", seed " << seed;
        if (violations.empty()) EXPECT_EQ(*ends.begin(), waits.end());
        if (gets_stuck(violations)) ++stuck;
        ++programs;
      }
    }
  }
  EXPECT_EQ(programs, 600U);
  EXPECT_GT(stuck, 50U);
}

Op op(const std::string& text, std::int64_t replica = 0) {
  return {*op_kind(text[1]), ReplicaId(replica), StageId(text[0] - '0'), MicroBatchId(text[2] - '0')};
}

std::vector<Op> ops(const std::vector<std::string>& texts) {
  std::vector<Op> result;
  for (const std::string& text : texts) result.push_back(op(text));
  return result;
}

void expect_both_disciplines(const Schedule& schedule) {
  const auto faults = check(schedule);
  ASSERT_TRUE(faults.empty()) << faults.front().message;
  for (const ChannelDiscipline discipline : kInterleavedDisciplines) {
    const Program program = lower(schedule, {.discipline = discipline});
    const auto violations = check(program, discipline);
    EXPECT_TRUE(violations.empty()) << to_text(discipline) << ": " << violations.front().message;
    EXPECT_TRUE(testing::plays(program, discipline, 20'000)) << to_text(discipline);
  }
}

TEST(OvertakingTest, AMicroBatchSentLaterIsUsedEarlier) {
  Schedule schedule{.name = "overtaking", .stages = 2, .micro_batches = 3, .placement = {}, .workers = {}};
  schedule.placement.worker_of = {{WorkerId(0), WorkerId(1)}};
  schedule.workers = {ops({"0F0", "0F1", "0F2", "0B1", "0B0", "0B2"}), ops({"1F2", "1F0", "1F1", "1B2", "1B0", "1B1"})};
  expect_both_disciplines(schedule);
}

TEST(OvertakingTest, ActivationsAndGradientsOfTwoDirectionsShareAChannel) {
  // Worker 0 sends 0F0 (down), then the gradients 1I2 and 1I3 (up); worker 1 uses 1I3 before 0F0 and 1I2.
  Schedule schedule{.name = "overtaking", .stages = 2, .micro_batches = 4, .placement = {}, .workers = {}};
  schedule.placement.worker_of = {{WorkerId(0), WorkerId(1)}, {WorkerId(1), WorkerId(0)}};
  const auto down = [](const char* text) { return op(text, 0); };
  const auto up = [](const char* text) { return op(text, 1); };
  schedule.workers = {{down("0F0"), up("1F2"), up("1I2"), up("1F3"), up("1I3"), up("1W2"), up("1W3"), down("0F1"),
                       down("0B0"), down("0B1")},
                      {up("0F2"), up("0F3"), up("0I3"), down("1F0"), up("0I2"), down("1B0"), up("0W3"), up("0W2"),
                       down("1F1"), down("1B1")}};
  expect_both_disciplines(schedule);
}

TEST(OvertakingTest, UpwardMessagesOvertakeDownwardMessagesInAV) {
  // Stages 0 and 3 are on worker 0, stages 1 and 2 on worker 1. 0F1 and 3I0 share a channel; 1I0 and 2F1 share the
  // other.
  Schedule schedule{.name = "overtaking", .stages = 4, .micro_batches = 2, .placement = {}, .workers = {}};
  schedule.placement.worker_of = {{WorkerId(0), WorkerId(1), WorkerId(1), WorkerId(0)}};
  schedule.workers = {ops({"0F0", "0F1", "3F0", "3I0", "3F1", "3I1", "3W0", "3W1", "0B1", "0B0"}),
                      ops({"1F0", "2F0", "2I0", "1F1", "2F1", "2I1", "1I1", "1I0", "2W0", "1W0", "2W1", "1W1"})};
  expect_both_disciplines(schedule);
}

/// A random order of all ops in which every op follows its inputs, split by worker.
Schedule random_schedule(Placement placement, std::int64_t micro_batches, std::mt19937_64& random) {
  Schedule schedule{.name = "random", .micro_batches = micro_batches, .placement = {}, .workers = {}};
  schedule.stages = static_cast<std::int64_t>(placement.worker_of.front().size());
  std::int64_t workers = 0;
  for (const auto& row : placement.worker_of) {
    for (const WorkerId worker : row) workers = std::max(workers, worker.value() + 1);
  }
  schedule.workers.resize(static_cast<std::size_t>(workers));
  std::vector<std::vector<Op>> chains;  // each in order: F up the stages, then backward down, W anywhere after its I
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const ReplicaId replica(m % static_cast<std::int64_t>(placement.num_replicas()));
    const bool split = random() % 2 == 0;
    std::vector<Op> chain;
    const auto add = [&](OpKind kind, std::int64_t s) {
      chain.push_back({kind, replica, StageId(s), MicroBatchId(m)});
    };
    for (std::int64_t s = 0; s < schedule.stages; ++s) add(OpKind::Forward, s);
    for (std::int64_t s = schedule.stages; s-- > 0;) add(split ? OpKind::BackwardInput : OpKind::Backward, s);
    for (std::int64_t s = schedule.stages; split && s-- > 0;) add(OpKind::BackwardWeight, s);
    chains.push_back(chain);
  }
  while (!chains.empty()) {
    auto& chain = chains[random() % chains.size()];
    const Op next = chain.front();
    schedule.workers[placement.worker(next.replica, next.stage).index()].push_back(next);
    chain.erase(chain.begin());
    std::erase_if(chains, [](const auto& each) { return each.empty(); });
  }
  schedule.placement = std::move(placement);
  return schedule;
}

TEST(OvertakingTest, AnyAcyclicOrderIsLoweredWithoutADeadlock) {
  const auto row = [](std::initializer_list<std::int64_t> workers) {
    std::vector<WorkerId> result;
    for (const std::int64_t worker : workers) result.emplace_back(worker);
    return result;
  };
  const std::vector<Placement> placements = {
      {{row({0, 1, 2})}},                                            // linear
      {{row({0, 1, 2, 3}), row({3, 2, 1, 0})}},                      // Chimera
      {{row({0, 1, 2, 2, 1, 0})}},                                   // V
      {{row({0, 1, 2, 0, 1, 2})}},                                   // interleaved
      {{row({0, 1, 2, 3}), row({2, 3, 0, 1}), row({3, 2, 1, 0})}}};  // three pipelines
  std::mt19937_64 random(4);
  for (int round = 0; round < 60; ++round) {
    for (const Placement& placement : placements) {
      expect_both_disciplines(random_schedule(placement, 2 + round % 7, random));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace chimera
