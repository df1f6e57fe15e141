#include "check/check_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "passes/lower.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr ChannelDiscipline kDisciplines[] = {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair};

/// Expects that the lowered schedule is safe in both disciplines.
void expect_safe(const Schedule& schedule, LoweringOptions options = {}) {
  for (const ChannelDiscipline discipline : kDisciplines) {
    options.discipline = discipline;
    const auto violations = check(lower(schedule, options), discipline);
    EXPECT_TRUE(violations.empty()) << to_text(discipline) << ": " << violations[0].message;
  }
}

TEST(CheckProgramTest, EveryRegisteredScheduleIsSafeInBothDisciplines) {
  testing::for_every_schedule(10, [](const Schedule& schedule) {
    expect_safe(schedule);
    expect_safe(forward_only(schedule));
  });
}

TEST(CheckProgramTest, RecomputationIsSafeInBothDisciplines) {
  testing::for_every_schedule(6, [](const Schedule& schedule) {
    LoweringOptions options;
    for (std::int64_t s = 0; s < schedule.stages; ++s) options.recompute.emplace(s);
    expect_safe(schedule, options);
  });
}

TEST(CheckProgramTest, OffloadingIsSafeInBothDisciplines) {
  testing::for_every_schedule(5, [](const Schedule& schedule) {
    LoweringOptions options;
    for (std::int64_t s = 0; s < schedule.stages; ++s) options.offload.emplace(s);
    if (schedule.micro_batches % 2 == 0) options.recompute = {StageId(0), StageId(schedule.stages - 1)};
    options.pairs = has_pairs(schedule) ? Pairs::Together : Pairs::InOrder;
    expect_safe(schedule, options);
  });
}

TEST(CheckProgramTest, ActivationsAreLoadedBeforeTheirBackward) {
  Program program = lower(find_generator("1f1b").generate({4, 4}), {.offload = {StageId(0)}});
  ASSERT_EQ(program.most_on_device, 2);
  ASSERT_TRUE(check(program, ChannelDiscipline::PerDirection).empty());
  Program crowded = program;
  crowded.most_on_device = 1;
  EXPECT_THAT(check(crowded, ChannelDiscipline::PerDirection).front().message,
              HasSubstr("more than 1 micro-batches of offloaded stages are on the device"));
  std::erase_if(program.workers[0], [](const Instruction& instruction) {
    return instruction.kind == InstructionKind::Load && instruction.op.micro_batch == MicroBatchId(2);
  });
  const auto violations = check(program, ChannelDiscipline::PerDirection);
  ASSERT_THAT(violations, SizeIs(2));
  EXPECT_EQ(violations[0].kind, ViolationKind::BadDataFlow);
  EXPECT_THAT(violations[0].message, HasSubstr("(0B2): its activations are in host memory"));
  const Place at = violations[0].places.at(0);
  EXPECT_EQ(to_text(program.workers[at.worker][at.position]), "0B2") << "the counterexample";
  EXPECT_THAT(violations[1].message, HasSubstr("worker 0 never loads activations that it has offloaded"));
}

TEST(CheckProgramTest, SumsOfATiedMatrixAreSafeInBothDisciplines) {
  testing::for_every_schedule(6, [](const Schedule& schedule) {
    for (const AllReducePlacement placement : {AllReducePlacement::Eager, AllReducePlacement::Post}) {
      for (const bool every_stage : {false, true})
        expect_safe(schedule, {.all_reduces = {every_stage, placement, /*tied=*/true}});
    }
  });
}

TEST(CheckProgramTest, SafeWithAnyBoundOnTransfersAhead) {
  for (const std::int64_t ahead : {0, 1, 5}) {
    for (const std::int64_t behind : {1, 3})
      expect_safe(find_generator("chimera").generate({8, 20, 4}), {.receives_ahead = ahead, .sends_behind = behind});
  }
}

/// A naive program: blocking receives right before use, blocking sends right after.
Program naive(const Schedule& schedule) {
  Program program = lower(schedule);
  for (auto& instructions : program.workers) {
    std::vector<Instruction> blocking;
    for (const Instruction& instruction : instructions) {
      if (instruction.kind == InstructionKind::PostReceive || instruction.kind == InstructionKind::WaitSend) continue;
      if (instruction.kind == InstructionKind::WaitReceive)
        blocking.push_back({InstructionKind::PostReceive, instruction.op, instruction.peer});
      blocking.push_back(instruction);
      if (instruction.kind == InstructionKind::StartSend)
        blocking.push_back({InstructionKind::WaitSend, instruction.op, instruction.peer});
    }
    instructions = blocking;
  }
  return program;
}

TEST(CheckProgramTest, NaivePlacementDeadlocksWith1F1BAndChimera) {
  for (const char* name : {"1f1b", "chimera"}) {
    const auto violations = check(naive(find_generator(name).generate({4, 8})), ChannelDiscipline::PerDirection);
    ASSERT_FALSE(violations.empty()) << name;
    EXPECT_EQ(violations.back().kind, ViolationKind::Deadlock) << name;
    EXPECT_GE(violations.back().places.size(), 2U) << name;
    EXPECT_THAT(violations.back().message, HasSubstr("deadlock, a cycle of 2 workers: worker ")) << name;
  }
  EXPECT_TRUE(check(naive(find_generator("gpipe").generate({4, 8})), ChannelDiscipline::PerDirection).empty());
}

TEST(CheckProgramTest, ReceivesPostedForGlooMayDeadlockInOneSerialQueue) {
  const Program program =
      lower(find_generator("1f1b").generate({4, 8}), {.discipline = ChannelDiscipline::PerDirection});
  EXPECT_TRUE(check(program, ChannelDiscipline::PerDirection).empty());
  EXPECT_FALSE(check(program, ChannelDiscipline::SerialPair).empty());
}

/// The worker's first instruction of a kind.
Instruction* first(Program& program, std::size_t worker, InstructionKind kind) {
  for (Instruction& instruction : program.workers[worker]) {
    if (instruction.kind == kind) return &instruction;
  }
  return nullptr;
}

Program lowered() { return lower(find_generator("chimera").generate({4, 4})); }

std::set<ViolationKind> kinds(const Program& program) {
  std::set<ViolationKind> result;
  for (const Violation& violation : check(program, ChannelDiscipline::PerDirection)) result.insert(violation.kind);
  return result;
}

void erase_first(Program& program, std::size_t worker, InstructionKind kind) {
  auto& instructions = program.workers[worker];
  instructions.erase(instructions.begin() + (first(program, worker, kind) - instructions.data()));
}

TEST(CheckProgramTest, FindsAMissingInstructionByItsConsequences) {
  const auto without = [](InstructionKind kind) {
    Program program = lowered();
    erase_first(program, 1, kind);
    return kinds(program);
  };
  EXPECT_TRUE(without(InstructionKind::StartSend).contains(ViolationKind::Deadlock) ||
              without(InstructionKind::StartSend).contains(ViolationKind::Mismatch));
  EXPECT_TRUE(without(InstructionKind::WaitReceive).contains(ViolationKind::BadDataFlow));
  EXPECT_TRUE(without(InstructionKind::PostReceive).contains(ViolationKind::BadDataFlow));
  EXPECT_TRUE(without(InstructionKind::Compute).contains(ViolationKind::BadDataFlow));
  EXPECT_TRUE(without(InstructionKind::StartAllReduce).contains(ViolationKind::Deadlock));
  EXPECT_TRUE(without(InstructionKind::ReduceScalars).contains(ViolationKind::Deadlock));
}

TEST(CheckProgramTest, StagesOfOneWorkerAreSummedIfAsked) {
  const Schedule schedule = find_generator("1f1b").generate({4, 4});
  const auto violations = [](const Program& program) {
    return check(program, ChannelDiscipline::PerDirection, SummedStages::All);
  };
  EXPECT_TRUE(check(lower(schedule), ChannelDiscipline::PerDirection).empty());
  EXPECT_EQ(violations(lower(schedule)).size(), 4U) << "one stage of each worker";
  Program program = lower(schedule, {.all_reduces = {.every_stage = true}});
  EXPECT_TRUE(violations(program).empty());
  erase_first(program, 2, InstructionKind::WaitAllReduce);
  ASSERT_EQ(violations(program).size(), 1U);
  EXPECT_EQ(violations(program)[0].message, "worker 2 does not start, or does not wait for, the all-reduce of stage 2");
  EXPECT_TRUE(violations(lower(forward_only(schedule))).empty());
}

TEST(CheckProgramTest, RecomputationComesBetweenForwardAndBackward) {
  const Program good = lower(find_generator("gpipe").generate({1, 1}), {.recompute = {StageId(0)}});
  ASSERT_TRUE(kinds(good).empty());
  for (const std::size_t place : {0, 1}) {  // 0F0, recompute, 0B0
    Program bad = good;
    std::swap(bad.workers[0][place], bad.workers[0][place + 1]);
    EXPECT_TRUE(kinds(bad).contains(ViolationKind::BadDataFlow)) << place;
  }
}

TEST(CheckProgramTest, AnEndedWorkerIsNamed) {
  Program program = lowered();
  erase_first(program, 2, InstructionKind::ReduceScalars);
  EXPECT_THAT(check(program, ChannelDiscipline::PerDirection).back().message, HasSubstr("worker 2 has ended"));
}

TEST(CheckProgramTest, AllReducesOfSharedWorkersStartInOneOrder) {
  for (const std::int64_t micro_batches : {1, 4}) {
    Program program = lower(find_generator("chimera").generate({4, micro_batches}));
    ASSERT_TRUE(check(program, ChannelDiscipline::PerDirection).empty());
    std::vector<Instruction*> starts;  // of stages 0 and 3, on worker 3
    for (Instruction& instruction : program.workers[3]) {
      if (instruction.kind == InstructionKind::StartAllReduce) starts.push_back(&instruction);
    }
    ASSERT_EQ(starts.size(), 2U);
    auto& list = program.workers[3];
    const Instruction first = *starts[0];
    list.erase(list.begin() + (starts[0] - list.data()));
    list.insert(list.begin() + (starts[1] - list.data()), first);  // after the second
    const auto violations = check(program, ChannelDiscipline::PerDirection);
    ASSERT_EQ(violations.size(), 1U);
    EXPECT_EQ(violations[0].kind, ViolationKind::AllReduceOrder);
    EXPECT_EQ(violations[0].message,
              "a cycle in the order of all-reduces, which can deadlock: "
              "worker 3 starts the all-reduce of stage 0 before the all-reduce of stage 3; worker 0 starts the "
              "all-reduce of stage 3 before the all-reduce of stage 0");
  }
}

/// Position at which worker 0 starts the all-reduce of its tied matrix.
std::size_t tied_start(const Program& program) {
  const auto& list = program.workers[0];
  const auto is_start = [&](const Instruction& instruction) {
    return instruction.kind == InstructionKind::StartAllReduce && instruction.group == tied_matrix(program.stages);
  };
  return static_cast<std::size_t>(std::find_if(list.begin(), list.end(), is_start) - list.begin());
}

TEST(CheckProgramTest, ATiedMatrixIsSummedAfterBothUsesEvenByOneOwner) {
  for (const char* name : {"1f1b", "chimera", "zb-v"}) {
    const Program good = lower(find_generator(name).generate({4, 8}), {.all_reduces = {.tied = true}});
    ASSERT_TRUE(kinds(good).empty()) << name;
    Program early = good;  // before the last op of either use
    std::size_t start = tied_start(early);
    auto& list = early.workers[0];
    while (list[start].kind != InstructionKind::Compute) {
      std::swap(list[start], list[start - 1]);
      if (list[start].kind == InstructionKind::Compute) break;
      --start;
    }
    EXPECT_TRUE(kinds(early).contains(ViolationKind::BadDataFlow)) << name;
  }
  Program missing = lower(find_generator("zb-v").generate({4, 8}), {.all_reduces = {.tied = true}});
  const auto start = static_cast<std::ptrdiff_t>(tied_start(missing));
  missing.workers[0].erase(missing.workers[0].begin() + start);
  EXPECT_TRUE(kinds(missing).contains(ViolationKind::BadDataFlow)) << "its two gradients are never added";
}

TEST(CheckProgramTest, OwnersOfATiedMatrixStartAllReducesInOneOrder) {
  Program program = lower(find_generator("chimera").generate({4, 4}), {.all_reduces = {.tied = true}});
  const std::size_t start = tied_start(program);  // right after the all-reduce of stage 0
  std::swap(program.workers[0][start], program.workers[0][start - 1]);
  const auto violations = check(program, ChannelDiscipline::PerDirection);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].kind, ViolationKind::AllReduceOrder);
}

TEST(CheckProgramTest, AStageAboveTheLastIsSummedByTiedProgramsOnly) {
  Program program = lower(find_generator("1f1b").generate({4, 8}), {.all_reduces = {.tied = true}});
  program.tied = false;
  EXPECT_TRUE(kinds(program).contains(ViolationKind::OutOfRange));
}

TEST(CheckProgramTest, MissingAndRepeatedInstructionsAreViolations) {
  const auto damaged = [](auto damage) {
    Program program = lowered();
    damage(program);
    return kinds(program);
  };
  const auto repeat = [](InstructionKind kind) {
    return [kind](Program& program) {
      auto& list = program.workers[1];
      const auto at = first(program, 1, kind) - list.data();
      list.insert(list.begin() + at, Instruction(list[static_cast<std::size_t>(at)]));
    };
  };
  const auto leave_out = [](InstructionKind kind) {
    return [kind](Program& program) { erase_first(program, 1, kind); };
  };
  for (const InstructionKind kind :
       {InstructionKind::StartSend, InstructionKind::PostReceive, InstructionKind::WaitSend,
        InstructionKind::WaitReceive, InstructionKind::StartAllReduce, InstructionKind::WaitAllReduce,
        InstructionKind::ReduceScalars, InstructionKind::OptimizerStep}) {
    EXPECT_TRUE(damaged(repeat(kind)).contains(ViolationKind::BadDataFlow)) << static_cast<int>(kind);
  }
  EXPECT_TRUE(damaged(repeat(InstructionKind::Compute)).contains(ViolationKind::DoubledOp));
  for (const InstructionKind kind :
       {InstructionKind::WaitSend, InstructionKind::WaitAllReduce, InstructionKind::OptimizerStep}) {
    EXPECT_EQ(damaged(leave_out(kind)), std::set{ViolationKind::BadDataFlow}) << static_cast<int>(kind);
  }
}

TEST(CheckProgramTest, SwappedReceivesGetTheWrongTensor) {
  Program program = lower(find_generator("gpipe").generate({2, 2}));
  auto& instructions = program.workers[1];
  ASSERT_EQ(instructions[0].kind, InstructionKind::PostReceive);
  ASSERT_EQ(instructions[1].kind, InstructionKind::PostReceive);
  std::swap(instructions[0], instructions[1]);
  EXPECT_TRUE(kinds(program).contains(ViolationKind::Mismatch));
}

}  // namespace
}  // namespace chimera
