
#include "plan/layer_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/compare_models.h"
#include "plan/machines.h"
#include "plan/plan.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Candidate shared_by(std::int64_t tensor_parallel) {
  Candidate candidate{.schedule = "1f1b", .shape = {.stages = 2, .micro_batches = 4}, .micro_batch_size = 2};
  candidate.tensor_parallel = tensor_parallel;
  return candidate;
}

TEST(TensorParallelTest, WorkIsDividedButNotTheOverheadPerCall) {
  const MachineProfile machine = round_machine();  // forward 2 + b, gradients b and 2b
  const ModelConfig model = find_model("gpt2-mini");
  const Workload workload{.micro_batch_size = 4};
  const LayerTime split = split_layer_time(machine, model, LayerKind::Block, workload, 4);
  EXPECT_DOUBLE_EQ(split.forward, 2 + 1);
  EXPECT_DOUBLE_EQ(split.input_gradient, 1);
  EXPECT_DOUBLE_EQ(split.weight_gradient, 2);
  EXPECT_EQ(split_layer_time(machine, model, LayerKind::Block, workload, 1),
            layer_time(machine, model, LayerKind::Block, workload));
}

TEST(TensorParallelTest, ABlockSumsItsHiddenStatesTwiceEachWay) {
  MachineProfile machine = linear_machine();
  machine.all_reduce.within_node.beta = 1e-9;
  machine.all_reduce.between_nodes.beta = 1e-8;
  const ModelConfig model = find_model("gpt2-mini");
  const Workload workload{.micro_batch_size = 3, .sequence = 128};
  const double bytes = 3.0 * 128 * static_cast<double>(model.hidden) * 4;
  const LayerTime sums = tensor_sums(machine, model, LayerKind::Block, workload, 4);
  EXPECT_DOUBLE_EQ(sums.forward, 2 * 2 * 0.75 * 1e-9 * bytes);
  EXPECT_DOUBLE_EQ(sums.input_gradient, sums.forward);
  EXPECT_EQ(sums.weight_gradient, 0);
  machine.workers_per_node = 2;
  EXPECT_DOUBLE_EQ(tensor_sums(machine, model, LayerKind::Block, workload, 4).forward, 5 * sums.forward)
      << "two rings over several nodes";
  machine.contention.node_transfers = 1;
  EXPECT_DOUBLE_EQ(tensor_sums(machine, model, LayerKind::Block, workload, 4).forward, 10 * sums.forward)
      << "both rings use one interface";
  EXPECT_EQ(tensor_sums(machine, model, LayerKind::Block, workload, 1).forward, 0);
}

TEST(TensorParallelTest, DividedTokensAreGatheredInOnePassAndScatteredInTheOther) {
  PlanProblem problem = problem_of(2, 8);
  problem.machine.all_reduce.within_node = {.alpha = 1e-3, .beta = 1e-9};
  for (const std::int64_t sequence : {128, 127}) {
    problem.workload.sequence = sequence;
    const auto tokens = static_cast<double>(sequence);
    const auto all_reduce = [](double bytes) { return 2e-3 + 1e-9 * bytes; };
    const double all = all_reduce(tokens * static_cast<double>(problem.model.hidden) * 4);
    const double half = sequence == 128 ? all / 2 : 0;
    const auto sums = [&](LayerKind kind) {
      return tensor_sums(problem.machine, problem.model, kind, problem.workload, 2);
    };
    const LayerTime embedding = sums(LayerKind::Embedding);
    EXPECT_DOUBLE_EQ(embedding.forward, all - half);
    EXPECT_DOUBLE_EQ(embedding.input_gradient, half);
    EXPECT_DOUBLE_EQ(embedding.recompute, embedding.forward);
    EXPECT_DOUBLE_EQ(sums(LayerKind::Head).forward, half + all_reduce(3 * tokens * 4))
        << "1 + T numbers for each token";
    EXPECT_DOUBLE_EQ(sums(LayerKind::Head).input_gradient, all - half);
    const StageModel model = Predictor(problem).prepare(shared_by(2)).model;
    const double cheap = recompute_seconds(problem.machine, problem.model,
                                           {.micro_batch_size = 2, .sequence = sequence, .tensor_parallel = 2},
                                           RecomputeLevel::Cheap, model.savings[3].seconds);
    EXPECT_EQ(model.savings[1].seconds > cheap + 1e-3, sequence == 128) << "norms are gathered again";
  }
}

TEST(TensorParallelTest, MeasuredLayersAndSumsTakeTheirPlace) {
  MachineProfile machine = round_machine();
  LayerTimes shared = round_layer(LayerKind::Block);
  for (LayerTime& time : shared.times) time.forward /= 4;
  shared.tensor_parallel = 2;
  machine.layers.push_back(shared);
  machine.op_sum = {.alpha = 10, .beta = 1e-3};
  const ModelConfig model = find_model("gpt2-mini");
  const Workload workload{.micro_batch_size = 4, .sequence = 128};
  EXPECT_DOUBLE_EQ(split_layer_time(machine, model, LayerKind::Block, workload, 2).forward, 6.0 / 4);
  EXPECT_DOUBLE_EQ(split_layer_time(machine, model, LayerKind::Block, workload, 1).forward, 6)
      << "the other way around, whole layers come from whole layers";
  const ModelConfig llama = find_model("llama-mini");
  machine.layers.push_back(round_layer(LayerKind::Block, "llama-mini"));
  EXPECT_DOUBLE_EQ(split_layer_time(machine, llama, LayerKind::Block, workload, 2).forward, 2 + 4.0 / 2)
      << "its whole layer is nearer than a shared layer of GPT-2";
  const double bytes = 4.0 * 128 * static_cast<double>(model.hidden) * 4;
  const LayerTime sums = tensor_sums(machine, model, LayerKind::Block, workload, 2);
  EXPECT_DOUBLE_EQ(sums.forward, 4 * 10 + 1e-3 * 2 * (bytes + bytes / 2)) << "two gathers of own tokens, two of all";
  EXPECT_EQ(sums.input_gradient, sums.forward);
  EXPECT_EQ(sums.recompute, sums.forward);
  Workload odd = workload;
  odd.sequence = 127;
  EXPECT_DOUBLE_EQ(tensor_sums(machine, model, LayerKind::Block, odd, 2).forward, 2 * (10 + 1e-3 * bytes * 127 / 128))
      << "whole tokens are added";
  odd.sequence = 128;
  odd.slices = 2;
  EXPECT_DOUBLE_EQ(tensor_sums(machine, model, LayerKind::Block, odd, 2).forward - sums.forward, 4 * 10);
  EXPECT_GT(tensor_sums(machine, model, LayerKind::Embedding, workload, 4).forward, 1e6) << "all-reduces of two nodes";
  machine.workers_per_node = 4;
  EXPECT_DOUBLE_EQ(tensor_sums(machine, model, LayerKind::Embedding, workload, 4).forward, 2 * 10 + 1e-3 * bytes);
}

TEST(TensorParallelTest, AWorkerComputesAndHoldsLess) {
  const PlanProblem problem = problem_of(8, 8);
  Predictor predictor(problem);
  const Prediction whole = predictor.predict(shared_by(1));
  const Prediction half = predictor.predict(shared_by(2));
  EXPECT_NEAR(half.step_seconds, whole.step_seconds / 2, 1e-9) << "sums are free here";
  EXPECT_LT(half.peak_memory_bytes, 0.75 * whole.peak_memory_bytes);
  EXPECT_GT(half.peak_memory_bytes, 0.5 * whole.peak_memory_bytes);
}

TEST(TensorParallelTest, TokensAreCutIfTDividesThem) {
  PlanProblem problem = problem_of(8, 8);
  const auto boundary = [&](std::int64_t sequence, std::int64_t tensor_parallel) {
    problem.workload.sequence = sequence;
    return Predictor(problem).prepare(shared_by(tensor_parallel)).model.costs.memory[1].boundary;
  };
  EXPECT_DOUBLE_EQ(boundary(128, 2), boundary(128, 1) / 2);
  EXPECT_DOUBLE_EQ(boundary(127, 2), boundary(127, 1));
}

TEST(TensorParallelTest, ItsSumsArePartOfTheStep) {
  PlanProblem problem = problem_of(4, 8);
  problem.machine.all_reduce.within_node.alpha = 0.125;  // an all-reduce over two workers takes a quarter
  Predictor predictor(problem);
  Candidate candidate = shared_by(2);
  candidate.shape = {.stages = 1, .micro_batches = 4};
  candidate.data_parallel = 2;
  candidate.micro_batch_size = 1;
  const StepParts parts = step_parts(predictor, candidate);
  // Each micro-batch has 8 blocks with two all-reduces each way, one of the embedding and two of the head.
  EXPECT_NEAR(parts.of(StepPart::TensorSums), 4 * (8 * 4 + 1 + 2) * 0.25, 1e-9);
  EXPECT_NEAR(parts.of(StepPart::Compute), 4 * 8 * 3 / 2.0, 1e-9);
}

TEST(TensorParallelTest, IsPlannedIfAsked) {
  PlanProblem problem = problem_of(8, 8);
  PlanOptions options{.schedules = {"1f1b"}};
  for (const Candidate& each : list_candidates(problem, options)) EXPECT_EQ(each.tensor_parallel, 1);
  options.given.tensor_parallel = {};
  std::set<std::int64_t> found;
  for (const Candidate& each : list_candidates(problem, options)) {
    EXPECT_EQ(each.tensor_parallel * each.data_parallel * each.shape.stages, 8);
    found.insert(each.tensor_parallel);
  }
  EXPECT_EQ(found, (std::set<std::int64_t>{1, 2, 4})) << "8 ranks would have less than one of 7 heads each";
  options.given.tensor_parallel = {3};
  EXPECT_THAT([&] { (void)list_candidates(problem, options); },
              ThrowsMessage<ConfigError>(HasSubstr("--tensor-parallel 3: no configuration of 8 workers")));
  options.given.tensor_parallel = {8};
  EXPECT_THAT(
      [&] { (void)list_candidates(problem, options); },
      ThrowsMessage<ConfigError>(HasSubstr("--tensor-parallel 8: parts of 1 of the 7 heads of model gpt2-mini")));
}

}  // namespace
}  // namespace chimera
