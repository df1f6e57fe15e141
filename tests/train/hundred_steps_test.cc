// Canonical reduction over a hundred steps with dropout and clipping: loss, gradient norm and parameters of every step
// agree bit by bit. CHIMERA_LONG_TESTS=1 tries every schedule, shape and flag.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <ostream>

#include "core/error.h"
#include "generate/registry.h"
#include "support/schedules.h"
#include "support/training.h"

namespace chimera {
namespace {

constexpr std::int64_t kHundredSteps = 100;
constexpr std::int64_t kHundredMicroBatches = 8;  // of a step, over all groups

/// A schedule, and flags that must not change the numbers.
struct Run {
  std::string schedule;
  PipelineShape shape;
  DataType dtype = DataType::Float32;
  std::int64_t data_parallel = 1;
  bool recompute = false;
  bool shard_optimizer = false;
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
};

std::string name_of(const Run& run) {
  std::string name = testing::describe(run.schedule, run.shape) + " W=" + std::to_string(run.data_parallel) + " " +
                     to_text(run.dtype) + " " + to_text(run.sync) + (run.recompute ? " recompute" : "") +
                     (run.shard_optimizer ? " shard" : "");
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

void PrintTo(const Run& run, std::ostream* out) { *out << name_of(run); }

TrainOptions options_of(const Run& run) {
  TrainOptions options = testing::small_options("gpt2-tiny", run.schedule, run.shape);
  options.model.overrides.layers = 4;
  options.data.micro_batch_size = 1;
  options.data.sequence = 8;
  options.updates.steps = kHundredSteps;
  options.numbers.dtype = run.dtype;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.updates.clip = 0.5;
  options.model.dropout = 0.1;
  options.updates.learning_rate.peak = 0.01;
  options.parallel.data_parallel = run.data_parallel;
  options.memory.recompute = {run.recompute ? StageRule::Full : StageRule::None};
  options.memory.shard_optimizer = run.shard_optimizer;
  options.schedule.sync = run.sync;
  return options;
}

/// The unpipelined run with as many micro-batches of the same size.
const testing::Trained& unpipelined_run(DataType dtype) {
  static std::map<DataType, testing::Trained> runs;
  const auto [run, is_new] = runs.try_emplace(dtype);
  if (is_new) run->second = testing::train(options_of({"none", {1, kHundredMicroBatches}, dtype}), kHundredSteps);
  return run->second;
}

bool is_trainable(const Run& run) {
  try {
    const Schedule schedule = find_generator(run.schedule).generate(run.shape);
    return !schedule.updates && schedule.stages <= 4 && schedule.micro_batch_scale == 1 && schedule.slices == 1;
  } catch (const ConfigError&) {  // no such schedule
    return false;
  }
}

std::vector<Run> all_runs() {
  std::vector<Run> runs;
  for (const Generator& generator : generators()) {
    for (const std::int64_t depth : {1, 2, 4}) {
      for (const std::int64_t groups : {1, 2, 4}) {
        for (const PipelineShape& shape : testing::with_flags(generator, {depth, kHundredMicroBatches / groups})) {
          for (const DataType dtype : {DataType::Float32, DataType::Float64}) {
            for (const bool saves_memory : {false, true}) {
              const Run run{generator.name,
                            shape,
                            dtype,
                            groups,
                            saves_memory,
                            saves_memory,
                            saves_memory ? AllReducePlacement::Post : AllReducePlacement::Eager};
              if (is_trainable(run)) runs.push_back(run);
            }
          }
        }
      }
    }
  }
  return runs;
}

std::vector<Run> runs() {
  if (std::getenv("CHIMERA_LONG_TESTS") != nullptr) return all_runs();
  return {{"gpipe", {1, 2}, DataType::Float32, 4},
          {"1f1b", {4, 8}, DataType::Float32, 1, true},
          {"interleaved-1f1b", {2, 4, 2, 2}, DataType::Float32, 2, false, true},
          {"gems", {4, 8}, DataType::Float32},
          {"chimera", {2, 8}, DataType::Float32, 1, false, true, AllReducePlacement::Post},
          {"chimera", {4, 4, 4}, DataType::Float32, 2, true, true},
          {"zb-h1", {4, 8}, DataType::Float32, 1, true},
          {"zb-v", {2, 4}, DataType::Float32, 2, false, false, AllReducePlacement::Eager},
          {"chimera", {4, 8, 4}, DataType::Float64, 1, false, true, AllReducePlacement::Eager},
          {"chimera-zb", {2, 8, 2, 2}, DataType::Float32, 1, true},
          {"dualpipe", {2, 4}, DataType::Float64, 2, true}};
}

class HundredStepsTest : public ::testing::TestWithParam<Run> {};

TEST_P(HundredStepsTest, HaveTheBitsOfTheUnpipelinedModel) {
  const auto trained = testing::train(options_of(GetParam()), kHundredSteps);
  const auto& expected = unpipelined_run(GetParam().dtype);
  for (std::size_t step = 0; step < static_cast<std::size_t>(kHundredSteps); ++step) {
    ASSERT_EQ(trained.losses[step], expected.losses[step]) << "step " << step + 1;
    ASSERT_EQ(trained.gradient_norms[step], expected.gradient_norms[step]) << "step " << step + 1;
    ASSERT_EQ(trained.parameters_hashes[step], expected.parameters_hashes[step]) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(, HundredStepsTest, ::testing::ValuesIn(runs()),
                         [](const auto& run) { return name_of(run.param); });

TEST(HundredStepsReferenceTest, LearnsWhileItClips) {
  for (const DataType dtype : {DataType::Float32, DataType::Float64}) {
    const auto& run = unpipelined_run(dtype);
    EXPECT_LT(run.losses.back(), 0.8 * run.losses.front()) << to_text(dtype);
    EXPECT_GT(std::ranges::count_if(run.gradient_norms, [](double norm) { return norm > 0.5; }), 20) << to_text(dtype);
  }
}

TEST(RepeatedRunsTest, AreTheSameInEveryBit) {
  for (const ReductionOrder reduction : {ReductionOrder::Natural, ReductionOrder::Canonical}) {
    TrainOptions options = options_of({"chimera", {4, 4, 4}, DataType::Float32, 2});
    options.numbers.reduction = reduction;
    const auto first = testing::train(options, 3);
    for (int repeat = 1; repeat < 20; ++repeat) {
      const auto again = testing::train(options, 3);
      ASSERT_EQ(again.losses, first.losses) << to_text(reduction) << ", repeat " << repeat;
      ASSERT_EQ(again.gradient_norms, first.gradient_norms) << to_text(reduction) << ", repeat " << repeat;
      for (const auto& [name, copies] : first.parameters)
        ASSERT_TRUE(at::equal(again.parameters.at(name)[0], copies[0])) << name << ", repeat " << repeat;
    }
  }
}

}  // namespace
}  // namespace chimera
