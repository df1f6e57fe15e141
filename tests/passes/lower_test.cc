#include "passes/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/dependencies.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> in_words(const std::vector<Instruction>& instructions) {
  std::vector<std::string> lines;
  for (const Instruction& instruction : instructions) lines.push_back(to_text(instruction));
  return lines;
}

std::int64_t count(const Program& program, InstructionKind kind) {
  std::int64_t result = 0;
  for (const auto& instructions : program.workers) {
    for (const Instruction& instruction : instructions) result += instruction.kind == kind;
  }
  return result;
}

TEST(LowerTest, SpellsOutTheMessagesOfTwoStages) {
  const Program program = lower(find_generator("1f1b").generate({2, 2}));
  EXPECT_THAT(
      in_words(program.workers[0]),
      ::testing::ElementsAre("post receive of 1B0 from worker 1", "post receive of 1B1 from worker 1", "0F0",
                             "send 0F0 to worker 1", "0F1", "send 0F1 to worker 1", "wait for 1B0 from worker 1",
                             "wait for send of 0F0 to worker 1", "0B0", "wait for 1B1 from worker 1",
                             "wait for send of 0F1 to worker 1", "0B1", "sum norms and losses", "optimizer step"));
  EXPECT_THAT(in_words(program.workers[1]),
              ::testing::ElementsAre("post receive of 0F0 from worker 0", "post receive of 0F1 from worker 0",
                                     "wait for 0F0 from worker 0", "1F0", "1B0", "send 1B0 to worker 0",
                                     "wait for 0F1 from worker 0", "1F1", "1B1", "send 1B1 to worker 0",
                                     "wait for send of 1B0 to worker 0", "wait for send of 1B1 to worker 0",
                                     "sum norms and losses", "optimizer step"));
}

TEST(LowerTest, RecomputationPrecedesTheWaitForTheGradient) {
  const Program program = lower(find_generator("1f1b").generate({2, 1}), {.recompute = {StageId(0)}});
  EXPECT_THAT(in_words(program.workers[0]),
              ::testing::ElementsAre("post receive of 1B0 from worker 1", "0F0", "send 0F0 to worker 1",
                                     "recompute for 0B0", "wait for 1B0 from worker 1", "0B0",
                                     "wait for send of 0F0 to worker 1", "sum norms and losses", "optimizer step"));
  EXPECT_EQ(count(program, InstructionKind::Recompute), 1);  // stage 1 keeps its activations
}

TEST(LowerTest, ActivationsOfARecomputedStageAreFreedBeforeTheirGradientsArrive) {
  const Program program =
      lower(find_generator("gpipe").generate({2, 3}), {.sends_behind = 1, .recompute = {StageId(0)}});
  const auto words = in_words(program.workers[0]);
  const auto freed = std::find(words.begin(), words.end(), "wait for send of 0F1 to worker 1");
  ASSERT_NE(freed, words.end());
  EXPECT_EQ(*(freed + 1), "send 0F2 to worker 1");
}

TEST(LowerTest, RecomputationComesBeforeTheInputGradientOfASplitBackward) {
  const Schedule schedule = find_generator("zb-v").generate({2, 4});
  const Program program = lower(schedule, {.recompute = {StageId(0), StageId(1), StageId(2), StageId(3)}});
  EXPECT_EQ(count(program, InstructionKind::Recompute), 4 * 4);
  for (const auto& instructions : program.workers) {
    for (const Instruction& instruction : instructions) {
      if (instruction.kind != InstructionKind::Recompute) continue;
      EXPECT_EQ(instruction.op.kind, OpKind::BackwardInput);
    }
  }
}

TEST(LowerTest, OffloadedActivationsReturnOneOpBeforeTheirBackward) {
  const Program program =
      lower(find_generator("1f1b").generate({4, 4}), {.offload = {StageId(0), StageId(1), StageId(2), StageId(3)}});
  const auto without_messages = [&](std::size_t worker) {
    std::vector<Instruction> kept = program.workers[worker];
    std::erase_if(kept, [](const Instruction& each) { return is_transfer(each.kind) || !names_an_op(each.kind); });
    return in_words(kept);
  };
  EXPECT_THAT(without_messages(0),
              ::testing::ElementsAre("0F0", "offload 0F0", "0F1", "offload 0F1", "0F2", "offload 0F2", "load for 0B0",
                                     "0F3", "offload 0F3", "load for 0B1", "0B0", "load for 0B2", "0B1", "load for 0B3",
                                     "0B2", "0B3"));
  // Fewer than two ops between 2F0 and 2B0, and between 2F3 and 2B3: nothing to gain.
  EXPECT_THAT(without_messages(2), ::testing::ElementsAre("2F0", "2F1", "offload 2F1", "2B0", "load for 2B1", "2F2",
                                                          "offload 2F2", "2B1", "load for 2B2", "2F3", "2B2", "2B3"));
  EXPECT_THAT(without_messages(3), ::testing::Not(::testing::Contains(HasSubstr("load"))));
  EXPECT_EQ(program.most_on_device, 2);
}

TEST(LowerTest, ARecomputedFirstStageHasNothingToOffload) {
  const Program program = lower(find_generator("gpipe").generate({2, 8}),
                                {.recompute = {StageId(0), StageId(1)}, .offload = {StageId(0), StageId(1)}});
  EXPECT_EQ(count(program, InstructionKind::Offload), 8);  // of stage 1
  EXPECT_EQ(count(program, InstructionKind::Load), 8);
}

TEST(LowerTest, StagesOnOneWorkerSendNoMessage) {
  Schedule schedule = find_generator("gpipe").generate({2, 1});
  schedule.placement.worker_of[0] = {WorkerId(0), WorkerId(0)};
  auto& ops = schedule.workers;
  schedule.workers = {{ops[0][0], ops[1][0], ops[1][1], ops[0][1]}};
  EXPECT_THAT(in_words(lower(schedule).workers[0]),
              ::testing::ElementsAre("0F0", "1F0", "1B0", "0B0", "sum norms and losses", "optimizer step"));
}

TEST(LowerTest, AllReduceStartsAfterTheStagesLastBackward) {
  const Program program = lower(find_generator("chimera").generate({4, 4}));
  const auto words = in_words(program.workers[0]);
  const auto at = [&](const char* line) { return std::find(words.begin(), words.end(), line) - words.begin(); };
  EXPECT_EQ(at("start all-reduce of stage 3"), at("3B3") + 2);  // after its send
  EXPECT_EQ(at("start all-reduce of stage 0"), at("0B1") + 1);
  EXPECT_LT(at("start all-reduce of stage 3"), at("0B0"));
  EXPECT_LT(at("wait for all-reduce of stage 3"), at("sum norms and losses"));
  EXPECT_EQ(count(program, InstructionKind::StartAllReduce), 8);
}

TEST(LowerTest, AReplicaWithoutMicroBatchesStillJoinsItsAllReduces) {
  const Program program = lower(find_generator("chimera").generate({4, 1}));
  EXPECT_EQ(count(program, InstructionKind::StartAllReduce), 8);
  EXPECT_EQ(to_text(program.workers[0].front()), "start all-reduce of stage 3");
}

TEST(LowerTest, EveryStageIsSummedIfThereAreSeveralGroups) {
  const Schedule schedule = find_generator("1f1b").generate({4, 4});
  EXPECT_EQ(count(lower(schedule), InstructionKind::StartAllReduce), 0);
  const Program program = lower(schedule, {.all_reduces = {.every_stage = true}});
  EXPECT_EQ(count(program, InstructionKind::StartAllReduce), 4);
  EXPECT_EQ(count(program, InstructionKind::WaitAllReduce), 4);
}

TEST(LowerTest, ForwardOnlyHasNoAllReduceAndNoStep) {
  const Program program = lower(forward_only(find_generator("chimera").generate({4, 6})));
  EXPECT_EQ(count(program, InstructionKind::Compute), 24);
  EXPECT_EQ(count(program, InstructionKind::StartAllReduce), 0);
  EXPECT_EQ(count(program, InstructionKind::OptimizerStep), 0);
  EXPECT_EQ(count(program, InstructionKind::ReduceScalars), 4);
  EXPECT_EQ(count(program, InstructionKind::StartSend), count(program, InstructionKind::WaitSend));
}

/// Transfers of micro-batches between two workers. Each has a message of F and a message of B or I.
std::int64_t num_hops(const Schedule& schedule) {
  std::int64_t hops = 0;
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops) {
      if (op.kind != OpKind::Forward || op.stage == StageId(0)) continue;
      const auto& row = schedule.placement.worker_of[op.replica.index()];
      hops += row[op.stage.index()] != row[op.stage.index() - 1];
    }
  }
  return hops;
}

TEST(LowerTest, EveryTransferIsPostedSentAndWaitedForOnce) {
  testing::for_every_schedule(8, [](const Schedule& schedule) {
    const Program program = lower(schedule);
    const std::int64_t sends = count(program, InstructionKind::StartSend);
    EXPECT_EQ(sends, 2 * num_hops(schedule));
    EXPECT_EQ(count(program, InstructionKind::PostReceive), sends);
    EXPECT_EQ(count(program, InstructionKind::WaitReceive), sends);
    EXPECT_EQ(count(program, InstructionKind::WaitSend), sends);
  });
}

/// Most sends of gradients in flight at once on a worker.
std::int64_t peak_gradient_sends(const Program& program) {
  std::int64_t peak = 0;
  for (const auto& instructions : program.workers) {
    std::int64_t under_way = 0;
    for (const Instruction& instruction : instructions) {
      if (instruction.op.kind != OpKind::Backward) continue;
      under_way += instruction.kind == InstructionKind::StartSend;
      under_way -= instruction.kind == InstructionKind::WaitSend;
      peak = std::max(peak, under_way);
    }
  }
  return peak;
}

TEST(LowerTest, MessageMemoryDoesNotGrowWithTheMicroBatches) {
  for (const char* name : {"1f1b", "chimera"}) {
    for (const std::int64_t depth : {2, 4, 8, 16}) {
      const auto peak = [&](std::int64_t n) {
        return peak_posted_receives(lower(find_generator(name).generate({depth, n})));
      };
      EXPECT_EQ(peak(4 * depth), peak(16 * depth)) << name << " D=" << depth;
      EXPECT_LE(peak(16 * depth), 4 * 2 + depth) << name << " D=" << depth;
      EXPECT_LE(peak_gradient_sends(lower(find_generator(name).generate({depth, 8 * depth}))), 2 * 2)
          << name << " D=" << depth;
    }
  }
}

/// Position of the worker's first op after `maker` in t.
std::size_t turn_of(const OpTable& table, const std::vector<std::int64_t>& start, const Op& maker, std::size_t worker) {
  const OpIndex made = table.find(maker.kind, maker.stage, maker.micro_batch, maker.slice);
  const auto in_t = [&](OpIndex op) { return std::pair(start[op], table.worker(op)); };
  std::size_t position = 0;
  while (position < table.schedule().workers[worker].size() &&
         in_t(table.first(worker) + static_cast<OpIndex>(position)) < in_t(made)) {
    ++position;
  }
  return position;
}

TEST(LowerTest, OnGpusNoReceiveIsPostedMoreThanOneOpBeforeItsTurn) {
  testing::for_every_schedule(6, [](const Schedule& schedule) {
    const OpTable table(schedule);
    for (const Pairs pairs : {Pairs::InOrder, Pairs::Together}) {
      const std::vector<std::int64_t> start = unit_start_times(table, pairs);
      const Program program = lower(schedule, {.receives_ahead = kReceivesAheadOnGpus, .pairs = pairs});
      for (std::size_t w = 0; w < program.workers.size(); ++w) {
        std::size_t done = 0;
        for (const Instruction& instruction : program.workers[w]) {
          done += instruction.kind == InstructionKind::Compute;
          if (instruction.kind != InstructionKind::PostReceive) continue;
          const std::size_t turn = turn_of(table, start, instruction.op, w);
          EXPECT_LE(done, turn);
          const std::size_t next = done + (done < turn ? num_concurrent(schedule.workers[w], done, pairs) : 0);
          EXPECT_GE(next, turn) << to_text(instruction) << " on worker " << w;
        }
      }
    }
  });
}

}  // namespace
}  // namespace chimera
