#include "engine/run_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RunShapeTest, CountsRanksAndSamplesOverGroups) {
  const RunShape run =
      run_shape({.schedule = {.name = "chimera", .shape = {4, 8}}, .data_parallel = 2, .micro_batch_size = 3});
  EXPECT_EQ(run.num_ranks(), 8);
  EXPECT_EQ(run.micro_batches(), 16);
  EXPECT_EQ(run.mini_batch(), 48);
  EXPECT_THAT(run.stages_of(WorkerId(0)), ElementsAre(StageId(0), StageId(3)));
  EXPECT_EQ(run.first_sample(GroupId(1), MicroBatchId(0)), 24) << "each group has a run of its own";
}

TEST(RunShapeTest, MicroBatchesDefaultToStages) {
  EXPECT_EQ(run_shape({.schedule = {.name = "1f1b", .shape = {3, 0}}}).micro_batches(), 3);
}

TEST(RunShapeTest, UnpipelinedOneRankRunsTheMicroBatchesOfAllGroups) {
  const RunShape run = run_shape({.schedule = {.name = "none", .shape = {4, 8}}, .data_parallel = 2});
  EXPECT_EQ(run.num_ranks(), 1);
  EXPECT_EQ(run.micro_batches(), 16);
}

TEST(RunShapeTest, HalvingMakesSmallerMicroBatchesOfTheSameStep) {
  RunRequest request{.schedule = {.name = "chimera", .shape = {2, 4}}, .micro_batch_size = 3};
  request.schedule.shape.scale = ScaleMethod::Halving;
  const RunShape odd = run_shape(request);
  EXPECT_THAT([&] { require_whole_micro_batches(odd, "--size"); },
              ThrowsMessage<ConfigError>(HasSubstr("--size 3: the schedule needs micro-batches 0.5 times as large")));
  request.micro_batch_size = 4;
  const RunShape even = run_shape(request);
  EXPECT_NO_THROW(require_whole_micro_batches(even, "--size"));
  EXPECT_EQ(even.samples_per_op(), 2);
  EXPECT_EQ(even.mini_batch(), 16);
}

TEST(RunShapeTest, RejectsInvalidSchedules) {
  EXPECT_THAT([] { (void)run_shape({.schedule = {.name = "chimer"}}); },
              ThrowsMessage<ConfigError>(HasSubstr("did you mean 'chimera'?")));
  EXPECT_THAT(
      [] {
        (void)run_shape({.schedule = {.name = "none", .shape = {1, -1}}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("--micro-batches must be 1 to")));
  auto broken = run_shape({.schedule = {.name = "gpipe", .shape = {2, 2}}}).schedule;
  broken.workers[0].pop_back();
  const RunRequest given{.schedule = {.given = std::make_shared<const Schedule>(broken)}};
  EXPECT_THROW((void)run_shape(given), ScheduleError);
}

// Replica 0 of Chimera has micro-batches 0, 1 and 4, 5 of eight on four stages: its samples come first.
TEST(DataOrderTest, SamplesAreDistributedByReplicaAndLossesAddedInDataOrder) {
  const RunShape run = run_shape({.schedule = {.name = "chimera", .shape = {4, 8}}});
  EXPECT_THAT(run.data_position, ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  // In data order the ones are added to each other before the large numbers cancel.
  const std::vector<double> losses = {1e16, -1e16, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(sum_in_data_order(run, losses), 6);
  EXPECT_EQ(sum_in_data_order(run, std::vector<double>{1, 1e16, 1, 1, 1, 1, -1e16, 1}), 1);
}

}  // namespace
}  // namespace chimera
