
#include "plan/compare_models.h"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/machines.h"

namespace chimera {
namespace {

/// Separate devices whose blocks take one second forward and one per gradient for every sequence; the other layers take
/// no time.
PlanProblem block_seconds() {
  PlanProblem problem;
  problem.model = find_model("gpt2-mini");  // 8 layers
  problem.machine = linear_machine();
  problem.workers = 4;
  problem.mini_batch = 8;
  problem.memory_bytes = problem.machine.memory_bytes;
  return problem;
}

Candidate one_f_one_b() {
  return {.schedule = "1f1b", .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 1};
}

StepParts parts_of(const PlanProblem& problem, const Candidate& candidate) {
  Predictor predictor(problem);
  const StepParts parts = step_parts(predictor, candidate);
  EXPECT_NEAR(std::accumulate(parts.seconds.begin(), parts.seconds.end(), 0.0),
              predictor.predict(candidate).step_seconds, 1e-9);
  return parts;
}

TEST(StepPartsTest, OpsAndBubbles) {
  const StepParts parts = parts_of(block_seconds(), one_f_one_b());
  EXPECT_DOUBLE_EQ(parts.of(StepPart::Compute), 8 * 2 * 3);
  EXPECT_DOUBLE_EQ(parts.of(StepPart::Bubble), 3 * 2 * 3);  // (D - 1) (F + B)
  for (const StepPart none : {StepPart::Recomputation, StepPart::Messages, StepPart::Sums, StepPart::Updates})
    EXPECT_EQ(parts.of(none), 0) << to_text(none);
}

TEST(StepPartsTest, RecomputationIsNotCompute) {
  Candidate candidate = one_f_one_b();
  for (std::int64_t stage = 0; stage < 4; ++stage) candidate.recompute.insert(StageId(stage));
  const StepParts parts = parts_of(block_seconds(), candidate);
  EXPECT_NEAR(parts.of(StepPart::Compute), 8 * 2 * 3, 1e-9);
  EXPECT_NEAR(parts.of(StepPart::Recomputation), 8 * 2, 1e-9);
}

TEST(StepPartsTest, MessagesSumsAndUpdatesCountTheirAddedTime) {
  PlanProblem problem = block_seconds();
  problem.workers = 8;
  problem.mini_batch = 16;
  problem.machine.point_to_point.within_node.alpha = 0.5;
  problem.machine.all_reduce.within_node.alpha = 3;
  problem.machine.step_overhead = 0.25;
  Candidate candidate = one_f_one_b();
  candidate.schedule = "gpipe";
  candidate.data_parallel = 2;
  const StepParts parts = parts_of(problem, candidate);
  EXPECT_DOUBLE_EQ(parts.of(StepPart::Messages), 3 * 0.5 + 3 * 0.5) << "through the stages and back";
  EXPECT_GT(parts.of(StepPart::Sums), 0);
  EXPECT_LE(parts.of(StepPart::Sums), 2 * 3);  // 2 log2(2) alpha, if nothing overlaps
  EXPECT_DOUBLE_EQ(parts.of(StepPart::Updates), 0.25);

  problem.shard_optimizer = true;
  EXPECT_DOUBLE_EQ(parts_of(problem, candidate).of(StepPart::Updates), 0.25) << "an all-gather is no update";
}

}  // namespace
}  // namespace chimera
