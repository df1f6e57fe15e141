// Stages with different numbers of layers train the same model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/training.h"
#include "train/observe/progress_report.h"
#include "train/setup/dry_run.h"

namespace chimera {
namespace {

struct PartitionCase {
  const char* schedule;
  PipelineShape shape;
  const char* partition;  // of the 8 layers of small_options()
};

class PartitionTrainingTest : public ::testing::TestWithParam<PartitionCase> {
 protected:
  TrainOptions options() const {
    TrainOptions options = testing::small_options("gpt2-tiny", GetParam().schedule, GetParam().shape);
    options.schedule.partition = parse_partition(GetParam().partition);
    options.updates.clip = 0.5;
    options.updates.learning_rate.peak = 0.01;
    return options;
  }
};

TEST_P(PartitionTrainingTest, LossesAndGradientsAreThoseOfTheUnpipelinedModel) {
  constexpr std::int64_t kSteps = 4;
  const auto pipelined = testing::train(options(), kSteps);
  const auto reference = testing::train_unpipelined(options(), kSteps);
  for (std::size_t step = 0; step < kSteps; ++step)
    EXPECT_NEAR(pipelined.losses[step], reference.losses[step], 1e-11 * reference.losses[step]) << "step " << step + 1;
  ASSERT_EQ(pipelined.gradients.size(), reference.gradients.size());
  for (const auto& [name, expected] : reference.gradients) {
    for (const at::Tensor& gradient : pipelined.gradients.at(name))
      EXPECT_LE(testing::relative_error(gradient, expected[0], reference.gradient_norms.back()), 1e-11) << name;
  }
}

TEST_P(PartitionTrainingTest, CanonicalReductionKeepsEveryBit) {
  TrainOptions canonical = options();
  canonical.numbers.dtype = DataType::Float32;
  canonical.numbers.reduction = ReductionOrder::Canonical;
  const auto uneven = testing::train(canonical, 2);
  canonical.schedule.partition = parse_partition("even");
  const auto even = testing::train(canonical, 2);
  EXPECT_EQ(uneven.losses, even.losses);
  EXPECT_EQ(uneven.parameters_hashes, even.parameters_hashes);
}

INSTANTIATE_TEST_SUITE_P(Schedules, PartitionTrainingTest,
                         ::testing::Values(PartitionCase{"1f1b", {4, 4}, "1,4,1,2"},
                                           PartitionCase{"1f1b", {2, 4}, "balanced"},
                                           PartitionCase{"chimera", {4, 4}, "3,1,3,1"},
                                           PartitionCase{"chimera", {4, 4}, "balanced"},
                                           PartitionCase{"interleaved-1f1b", {2, 4, 2, 2}, "1,4,2,1"}),
                         [](const auto& tested) {
                           std::string name = std::string(tested.param.schedule) + "_" + tested.param.partition;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == ','; }, '_');
                           return name;
                         });

TEST(PartitionTrainingJobTest, StagesHaveTheLayersAskedFor) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 8});
  options.model.overrides.vocabulary = 4096;  // its head has the FLOPs of many blocks
  options.schedule.partition = parse_partition("3,5");
  EXPECT_EQ(to_text(prepare_job(options).partition), "3,5");
  options.schedule.partition = parse_partition("balanced");
  EXPECT_EQ(to_text(prepare_job(options).partition), "7,1");
  options.schedule.partition = TrainOptions().schedule.partition;
  EXPECT_EQ(to_text(prepare_job(options).partition), "7,1") << "balanced by default where that is faster";
  EXPECT_THAT(partition_line(prepare_job(options), PartitionRule::Auto), ::testing::HasSubstr("7,1 (faster than even"));
  options.schedule.partition = parse_partition("even");
  EXPECT_EQ(to_text(prepare_job(options).partition), "4,4");
  EXPECT_EQ(partition_line(prepare_job(options), PartitionRule::Auto), "");
  options.schedule.name = "none";
  options.schedule.partition = parse_partition("3,5");
  EXPECT_EQ(to_text(prepare_job(options).partition), "8");
}

/// Sums over data-parallel groups, messages and updates do not count when stages are balanced, but in the forecast.
TEST(PartitionTrainingJobTest, TheForecastNeverCallsTheDefaultSlowerThanEven) {
  int uneven = 0;
  int kept = 0;  // although FLOPs and bytes alone are for uneven stages
  for (const char* schedule : {"1f1b", "zb-h1", "chimera"}) {
    for (const std::int64_t stages : {2, 4}) {
      for (const std::int64_t groups : {1, 4}) {
        for (const std::int64_t sequence : {16, 128}) {
          TrainOptions options = testing::small_options("gpt2", schedule, {stages, 2 * stages});
          options.model.overrides = {.layers = 8, .hidden = 256, .heads = 4};
          options.data.sequence = sequence;
          options.parallel.data_parallel = groups;
          options.numbers.dtype = DataType::Float32;
          const Job job = partition_job(resolve_job(options));
          options.schedule.partition = parse_partition("balanced");
          const Job balanced = partition_job(resolve_job(options));
          options.schedule.partition = parse_partition("even");
          const Job even = partition_job(resolve_job(options));
          uneven += job.partition != even.partition ? 1 : 0;
          kept += job.partition == even.partition && balanced.partition != even.partition ? 1 : 0;
          for (const double speed : {3e10, 8e10, 2e11}) {
            EXPECT_LE(forecast(job, machine_at(speed, job, job.options)).step_seconds,
                      forecast(even, machine_at(speed, even, even.options)).step_seconds)
                << schedule << " " << stages << " " << groups << " " << sequence << " " << speed;
          }
        }
      }
    }
  }
  EXPECT_GT(uneven, 0);
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace chimera
