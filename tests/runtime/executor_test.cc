#include "runtime/executor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "core/error.h"
#include "core/invariant.h"
#include "generate/registry.h"
#include "model/linear.h"
#include "passes/lower.h"
#include "support/logging_transport.h"
#include "support/message_of.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

/// y = w x; a last stage returns the sum of y as its loss.
class Scale final : public Stage {
 public:
  Scale(double weight, bool last) : Stage({{"weight", at::full({1}, weight, at::kDouble)}}), last_(last) {}
  at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) override {
    const at::Tensor y = (input.defined() ? input : batch.tokens) * parameters()[0].value;
    return last_ ? y.sum() : y;
  }

 private:
  bool last_;
};

const TensorSpec kMessage{{2}, at::kDouble};

StepHooks hooks(std::vector<double>* norms = nullptr) {
  return {.load =
              [](StageId, MicroBatchId m) {
                return MicroBatch{.tokens = at::full({2}, 1.0 + static_cast<double>(m.value()), at::kDouble)};
              },
          .update = {.all_stages =
                         [norms](double norm) {
                           if (norms != nullptr) norms->push_back(norm);
                         }},
          .observation = {.peak_memory = [] { return 7.0; }}};
}

ProgramShape shape_of(const Program& program) {
  return {program.micro_batches,
          {.workers = static_cast<std::int64_t>(program.workers.size())},
          stage_groups(program.placement)};
}

TEST(ExecutorTest, FirstStageSendsActivationsAndTakesGradients) {
  const Program program = lower(find_generator("1f1b").generate({2, 2}));
  LoggingTransport transport;
  transport.prime(RankId(1), at::full({2}, 10.0, at::kDouble));
  transport.prime(RankId(1), at::full({2}, 100.0, at::kDouble));
  Scale stage(3, false);
  std::vector<double> norms;
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  const StepResult result = executor.run(program.workers[0], hooks(&norms));

  EXPECT_THAT(transport.lines(), ElementsAre("receive from 1: [2] Double", "receive from 1: [2] Double",
                                             "send to 1: [2] Double", "send to 1: [2] Double", "wait receive from 1",
                                             "wait send to 1", "wait receive from 1", "wait send to 1", "all-sum: 10"));
  EXPECT_TRUE(at::equal(transport.sent(RankId(1))[1], at::full({2}, 6.0, at::kDouble)));
  // dL/dw = sum over micro-batches and elements of gradient times input: 2 * 10 * 1 + 2 * 100 * 2.
  EXPECT_EQ(stage.gradients().item<double>(), 420);
  EXPECT_THAT(norms, ElementsAre(420));
  EXPECT_EQ(result.gradient_norm, 420);
  EXPECT_EQ(result.peak_memory_bytes, 7);
  EXPECT_EQ(executor.current(), "");
}

TEST(ExecutorTest, LastStageMakesLossesAndSendsGradients) {
  const Program program = lower(find_generator("1f1b").generate({2, 2}));
  LoggingTransport transport;
  for (const double value : {1.0, 2.0}) transport.prime(RankId(0), at::full({2}, value, at::kDouble));
  Scale stage(5, true);
  Executor executor(WorkerId(1), {{StageId(1), &stage}}, transport, kMessage, shape_of(program));
  const StepResult result = executor.run(program.workers[1], hooks());
  EXPECT_THAT(result.losses, ElementsAre(10, 20));
  EXPECT_TRUE(at::equal(transport.sent(RankId(0))[0], at::full({2}, 5.0, at::kDouble)));
  EXPECT_EQ(stage.gradients().item<double>(), 6);
}

TEST(ExecutorTest, StagesOnOneWorkerHandOverWithoutMessages) {
  Schedule schedule = find_generator("gpipe").generate({2, 1});
  schedule.placement.worker_of[0] = {WorkerId(0), WorkerId(0)};
  const auto ops = schedule.workers;
  schedule.workers = {{ops[0][0], ops[1][0], ops[1][1], ops[0][1]}};
  const Program program = lower(schedule);
  LoggingTransport transport;
  Scale first(3, false);
  Scale last(5, true);
  Executor executor(WorkerId(0), {{StageId(0), &first}, {StageId(1), &last}}, transport, kMessage, shape_of(program));
  EXPECT_THAT(executor.run(program.workers[0], hooks()).losses, ElementsAre(30));
  EXPECT_THAT(transport.lines(), ElementsAre("all-sum: 6"));
  EXPECT_EQ(first.gradients().item<double>(), 10);
  EXPECT_EQ(last.gradients().item<double>(), 6);
}

TEST(ExecutorTest, GradientsStartFromZeroEachStep) {
  const Program program = lower(find_generator("gpipe").generate({1, 3}));
  LoggingTransport transport;
  Scale stage(2, true);
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  for (int step = 0; step < 2; ++step) {
    (void)executor.run(program.workers[0], hooks());
    EXPECT_EQ(stage.gradients().item<double>(), 2 * (1 + 2 + 3));
  }
}

TEST(ExecutorTest, WarmUpSendsNoMessagesAndChangesNothing) {
  const Program program = lower(find_generator("1f1b").generate({2, 2}));
  LoggingTransport transport;
  Scale stage(3, false);
  std::vector<double> norms;
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  executor.warm_up(program.workers[0], hooks(&norms));
  EXPECT_THAT(transport.lines(), ElementsAre("all-sum: 10"));
  EXPECT_THAT(norms, ElementsAre()) << "no update";

  const Program alone = lower(find_generator("gpipe").generate({1, 3}));
  Scale last(2, true);
  Executor single(WorkerId(0), {{StageId(0), &last}}, transport, kMessage, shape_of(alone));
  (void)single.run(alone.workers[0], hooks());
  single.warm_up(lower(forward_only(find_generator("gpipe").generate({1, 3}))).workers[0], hooks());
  EXPECT_EQ(last.gradients().item<double>(), 12) << "programs without backwards keep the last step's gradients";
  single.warm_up(alone.workers[0], hooks());
  EXPECT_EQ(last.gradients().item<double>(), 0);
}

/// A rendezvous of two threads, with a timeout.
class Meeting {
 public:
  bool come() {
    std::unique_lock lock(mutex_);
    ++came_;
    both_are_here_.notify_all();
    return both_are_here_.wait_for(lock, std::chrono::seconds(20), [this] { return came_ == 2; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable both_are_here_;
  int came_ = 0;
};

/// y = w x^2, summed. The forward of micro-batch 1 and the backward of micro-batch 0 call `in_pair`.
class Squares final : public Stage {
 public:
  Squares(std::function<void(bool forward)> in_pair)
      : Stage({{"weight", at::full({1}, 3.0, at::kDouble)}}), in_pair_(std::move(in_pair)) {}
  at::Tensor forward(const at::Tensor& /*input*/, const MicroBatch& batch) override {
    if (number_++ == 1) in_pair_(true);
    at::Tensor y = batch.tokens * batch.tokens * parameters()[0].value;
    if (number_ == 1) y.register_hook([this](const at::Tensor& /*gradient*/) { in_pair_(false); });
    return y.sum();
  }

 private:
  std::function<void(bool forward)> in_pair_;
  int number_ = 0;
};

Program one_pair(Pairs pairs) {
  Schedule schedule = find_generator("gpipe").generate({1, 2});  // 0F0 0F1 0B0 0B1
  schedule.workers[0][1].paired = true;
  return lower(schedule, {.pairs = pairs});
}

TEST(ExecutorTest, PairsRunConcurrently) {
  const Program program = one_pair(Pairs::Together);
  LoggingTransport transport;
  Meeting rendezvous;
  bool forward_met = false;
  bool backward_met = false;
  Squares stage([&](bool forward) { (forward ? forward_met : backward_met) = rendezvous.come(); });
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  std::vector<std::string> noted;
  StepHooks watched = hooks();
  watched.observation.on_instruction = [&](const Instruction& instruction) { noted.push_back(to_text(instruction)); };
  EXPECT_THAT(executor.run(program.workers[0], watched).losses, ElementsAre(6, 24));
  EXPECT_TRUE(forward_met);
  EXPECT_TRUE(backward_met);
  EXPECT_EQ(stage.gradients().item<double>(), 2 * (1 + 4));
  EXPECT_THAT(noted, ElementsAre("0F0", "0F1", "0B0", "0B1", "sum norms and losses", "optimizer step"));
  EXPECT_EQ(executor.op_times().count(StageId(0), OpKind::Forward), 2);
  EXPECT_EQ(executor.op_times().count(StageId(0), OpKind::Backward), 2);
}

TEST(ExecutorTest, InOrderTheForwardOfAPairEndsFirst) {
  const Program program = one_pair(Pairs::InOrder);
  LoggingTransport transport;
  std::vector<bool> order;
  Squares stage([&](bool forward) { order.push_back(forward); });
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  EXPECT_THAT(executor.run(program.workers[0], hooks()).losses, ElementsAre(6, 24));
  EXPECT_THAT(order, ElementsAre(true, false));
}

TEST(ExecutorTest, ExceptionInAPairEndsTheStepAtItsOp) {
  const Program program = one_pair(Pairs::Together);
  for (const bool forward_throws : {true, false}) {
    LoggingTransport transport;
    Squares stage([&](bool forward) {
      if (forward == forward_throws) throw Error("spoiled");
    });
    Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
    EXPECT_THROW((void)executor.run(program.workers[0], hooks()), std::exception);
    EXPECT_EQ(executor.current(), forward_throws ? "0F1" : "0B0");
    executor.drop();
    EXPECT_THAT(executor.run(program.workers[0], hooks()).losses, ElementsAre(6, 24)) << "the step can be run again";
  }
}

TEST(ExecutorTest, ForwardsOfValidationKeepNoGraphOrGradients) {
  const Program program = lower(forward_only(find_generator("gpipe").generate({1, 2})));
  LoggingTransport transport;
  Scale stage(2, true);
  stage.gradients().fill_(9);
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  EXPECT_THAT(executor.run(program.workers[0], hooks()).losses, ElementsAre(4, 8));
  EXPECT_EQ(stage.gradients().item<double>(), 9);
  EXPECT_EQ(executor.op_times().mean(StageId(0), OpKind::Forward).wall_seconds, 0);
}

/// Records for each forward if a graph is kept.
class Witness final : public Stage {
 public:
  Witness() : Stage({{"weight", at::full({1}, 2.0, at::kDouble)}}) {}
  at::Tensor forward(const at::Tensor&, const MicroBatch& batch) override {
    notes.push_back(
        fmt::format("{} {}", at::GradMode::is_enabled() ? "graph" : "alone", batch.tokens[0].item<double>()));
    return (batch.tokens * parameters()[0].value).sum();
  }
  std::vector<std::string> notes;
};

TEST(ExecutorTest, ARecomputedForwardRunsAgainBeforeItsBackward) {
  const Program program = lower(find_generator("gpipe").generate({1, 2}), {.recompute = {StageId(0)}});
  LoggingTransport transport;
  Witness stage;
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  EXPECT_THAT(executor.run(program.workers[0], hooks()).losses, ElementsAre(4, 8));
  EXPECT_THAT(stage.notes, ElementsAre("alone 1", "alone 2", "graph 1", "graph 2"));
  EXPECT_EQ(stage.gradients().item<double>(), 2 * (1 + 2));
}

TEST(OpTimesTest, RecomputationsCountApart) {
  OpTimes times(1);
  const Op backward{OpKind::Backward, ReplicaId(0), StageId(0), MicroBatchId(0)};
  for (const double seconds : {1.0, 3.0}) {
    times.add(StageId(0), OpTimes::kRecomputation, {.wall_seconds = seconds, .cpu_seconds = 0.5});
    times.add(backward, {.wall_seconds = 2 * seconds, .cpu_seconds = 1});
  }
  const OpTimes read = OpTimes(times.numbers());
  EXPECT_EQ(read.mean(StageId(0), OpKind::Backward).wall_seconds, 4);
  EXPECT_EQ(read.mean_recomputation(StageId(0)).wall_seconds, 2);
  EXPECT_EQ(read.mean_recomputation(StageId(0)).cpu_seconds, 0.5);
}

TEST(ExecutorTest, FailureRecordsItsOp) {
  const Program program = lower(find_generator("1f1b").generate({2, 1}));
  LoggingTransport transport;  // no message will arrive
  Scale stage(2, false);
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  EXPECT_THROW((void)executor.run(program.workers[0], hooks()), PeerLostError);
  EXPECT_EQ(executor.current(), "wait for 1B0 from worker 1");
}

/// Runs one instruction of a worker of 1f1b, and returns the message of the broken invariant.
std::string broken_invariant(const Instruction& instruction) {
  const Program program = lower(find_generator("1f1b").generate({2, 2}));
  LoggingTransport transport;
  Scale stage(2, false);
  Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
  return testing::message_of<InternalError>([&] { (void)executor.run({instruction}, hooks()); }, "none");
}

TEST(ExecutorTest, AMissingTensorOrTransferIsNamed) {
  const Op forward{.kind = OpKind::Forward, .stage = StageId(0), .micro_batch = MicroBatchId(1)};
  const Op backward{.kind = OpKind::Backward, .stage = StageId(0), .micro_batch = MicroBatchId(1)};
  const Op weight_gradient{.kind = OpKind::BackwardWeight, .stage = StageId(0), .micro_batch = MicroBatchId(1)};
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::StartSend, .op = forward, .peer = WorkerId(1)}),
            "internal error: the result of 0F1 (stage 0, micro-batch 1) is missing");
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::WaitSend, .op = forward}),
            "internal error: the send of 0F1 (stage 0, micro-batch 1) is missing");
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::WaitReceive, .op = forward}),
            "internal error: the receive of 0F1 (stage 0, micro-batch 1) is missing");
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::Compute, .op = backward}),
            "internal error: the activation of 0F1 (stage 0, micro-batch 1) is missing");
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::Compute, .op = weight_gradient}),
            "internal error: the deferred weight gradient of 0W1 (stage 0, micro-batch 1) is missing");
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::WaitAllReduce, .group = ParameterGroupId(0)}),
            "internal error: the gradient sum of parameter group 0 is missing");
  EXPECT_EQ(broken_invariant({.kind = InstructionKind::DropWeights, .op = forward}),
            "internal error: the weight versions of 0F1 (stage 0, micro-batch 1) are missing");
}

/// y = x w^T through the linear layer, whose backward may be split; the loss is the sum of the squares of y.
class Affine final : public Stage {
 public:
  Affine() : Stage({{"weight", at::arange(6, at::kDouble).view({3, 2}) + 1}}) {}
  at::Tensor forward(const at::Tensor&, const MicroBatch& batch) override {
    return linear(batch.tokens, {parameters()[0].value, {}, WeightLayout::OutIn}).square().sum();
  }
};

TEST(ExecutorTest, SplitBackwardsGiveTheBitsOfTheWhole) {
  const auto gradients_after = [](const char* order) {
    Schedule schedule = find_generator("gpipe").generate({1, 2});
    schedule.workers[0].clear();
    for (const char* text = order; *text != '\0'; text += 2)
      schedule.workers[0].push_back({*op_kind(text[0]), ReplicaId(0), StageId(0), MicroBatchId(text[1] - '0')});
    const Program program = lower(schedule);
    LoggingTransport transport;
    Affine stage;
    Executor executor(WorkerId(0), {{StageId(0), &stage}}, transport, kMessage, shape_of(program));
    (void)executor.run(program.workers[0], hooks());
    return stage.gradients().clone();
  };
  const at::Tensor whole = gradients_after("F0F1B0B1");
  EXPECT_GT(whole.abs().max().item<double>(), 0);
  EXPECT_TRUE(at::equal(gradients_after("F0F1I0I1W0W1"), whole));
  EXPECT_TRUE(at::equal(gradients_after("F0I0F1W0B1"), whole));
}

}  // namespace
}  // namespace chimera
