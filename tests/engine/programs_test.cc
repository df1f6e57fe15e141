#include "engine/programs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/lower.h"

namespace chimera {
namespace {

/// The op after which the worker starts the all-reduce of that stage's gradients.
std::string before_sum(const Program& program, WorkerId worker, StageId stage) {
  std::string before;
  for (const Instruction& instruction : program.workers[worker.index()]) {
    if (instruction.kind == InstructionKind::Compute) before = to_text(instruction.op);
    if (instruction.kind == InstructionKind::StartAllReduce && instruction.group == parameters_of(stage)) return before;
  }
  return "no sum";
}

TEST(ProgramsTest, SumsStartAtTheGivenPoint) {
  const RunShape run = run_shape({.schedule = {.name = "chimera", .shape = {4, 4}}});
  const auto start = [&](AllReducePlacement sync) {
    return before_sum(training_program(run, {.all_reduces = {.placement = sync}}), WorkerId(1), StageId(2));
  };
  EXPECT_EQ(start(AllReducePlacement::Eager), "2B3");
  EXPECT_EQ(start(AllReducePlacement::EagerOpt), "1B1") << "no bubble follows";
  EXPECT_EQ(start(AllReducePlacement::Post), "1B1");
}

TEST(ProgramsTest, AStageOfOneWorkerIsSummedOverGroupsAndInCanonicalRuns) {
  RunRequest request{.schedule = {.name = "1f1b", .shape = {2, 2}}};
  const RunShape alone = run_shape(request);
  EXPECT_EQ(before_sum(training_program(alone, {}), WorkerId(0), StageId(0)), "no sum");
  EXPECT_EQ(before_sum(training_program(alone, {.all_reduces = {.every_stage = true}}), WorkerId(0), StageId(0)),
            "0B1");
  request.data_parallel = 2;
  EXPECT_EQ(before_sum(training_program(run_shape(request), {}), WorkerId(0), StageId(0)), "0B1");
}

TEST(ProgramsTest, ValidationRunsOnlyForwards) {
  const Program program = validation_program(run_shape({.schedule = {.name = "chimera", .shape = {2, 2}}}));
  for (const auto& worker : program.workers) {
    for (const Instruction& instruction : worker) {
      EXPECT_NE(instruction.kind, InstructionKind::OptimizerStep);
      if (instruction.kind != InstructionKind::Compute) continue;
      EXPECT_EQ(instruction.op.kind, OpKind::Forward);
    }
  }
}

/// Number of receives that a worker posts before its first op.
std::int64_t posted_first(const Program& program, WorkerId worker) {
  const auto& instructions = program.workers[worker.index()];
  const auto is_post = [](const Instruction& each) { return each.kind == InstructionKind::PostReceive; };
  return std::ranges::find_if_not(instructions, is_post) - instructions.begin();
}

TEST(ProgramsTest, ReceivesArePostedAheadAsOftenAsChosen) {
  const RunShape run = run_shape({.schedule = {.name = "1f1b", .shape = {2, 4}}});
  EXPECT_EQ(posted_first(training_program(run, {}), WorkerId(0)), 2);
  EXPECT_EQ(posted_first(training_program(run, {.receives_ahead = kReceivesAheadOnGpus}), WorkerId(0)), 0)
      << "at most one op before its turn";
  EXPECT_EQ(posted_first(validation_program(run), WorkerId(1)), 4)
      << "two, and the two that are made before this worker's first op";
  EXPECT_EQ(posted_first(validation_program(run, kReceivesAheadOnGpus), WorkerId(1)), 3);
}

TEST(ProgramsTest, StreamsHaveTheGivenNumberOfSteps) {
  const RunShape run = run_shape({.schedule = {.name = "pipedream", .shape = {2, 2}}});
  EXPECT_EQ(continuous_program(run, 5, {}).steps, 5);
  EXPECT_EQ(run.updates(), 2) << "after every micro-batch";
}

}  // namespace
}  // namespace chimera
