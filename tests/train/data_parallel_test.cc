// W groups on N micro-batches each train as the unpipelined model on N W.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/message_of.h"
#include "support/training.h"
#include "train/observe/progress_report.h"

namespace chimera {
namespace {

TrainOptions hybrid(const std::string& schedule, const PipelineShape& shape, std::int64_t data_parallel) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, shape);
  options.parallel.data_parallel = data_parallel;
  return options;
}

/// The unpipelined run on the micro-batches of all groups.
testing::Trained reference(TrainOptions options, std::int64_t steps) {
  options.schedule.shape.micro_batches *= options.parallel.data_parallel;
  options.parallel.data_parallel = 1;
  return testing::train_unpipelined(options, steps);
}

void expect_same_gradients(const TrainOptions& options, std::size_t copies) {
  testing::expect_gradients(testing::train(options, 1), reference(options, 1), copies);
}

TEST(DataParallelTest, TwoGroupsTrainAsTheUnpipelinedModelOnAllTheirMicroBatches) {
  expect_same_gradients(hybrid("1f1b", {2, 4}, 2), 2);
  expect_same_gradients(hybrid("chimera", {2, 4}, 2), 4);
  expect_same_gradients(hybrid("dualpipe", {2, 4}, 2), 4);
  expect_same_gradients(hybrid("interleaved-1f1b", {2, 4, 2, 2}, 2), 2);
}

TEST(DataParallelTest, AnyNumberOfGroupsAndPipelinesIsOneReduction) {
  expect_same_gradients(hybrid("chimera", {4, 5, 4}, 3), 12);
  expect_same_gradients(hybrid("gpipe", {1, 3}, 4), 4);  // data parallelism alone
}

TEST(DataParallelTest, ConcurrentPipelinesComputeTheSame) {
  TrainOptions options = hybrid("chimera", {2, 4}, 2);
  options.parallel.replica_layout = ReplicaLayout::Far;
  expect_same_gradients(options, 4);
}

TEST(DataParallelTest, StepsClippingAndValidationAreThoseOfTheUnpipelinedModel) {
  TrainOptions options = hybrid("1f1b", {2, 4}, 2);
  options.updates.clip = 0.5;
  options.updates.learning_rate.peak = 0.01;
  options.data.validate_every = 10;
  const auto trained = testing::train(options, 10);
  const auto expected = reference(options, 10);
  testing::expect_losses(trained, expected);
  testing::expect_equal_copies(trained);
}

TEST(DataParallelTest, SamplesAreDealtOutByGroupThenReplica) {
  const Job job = prepare_job(hybrid("chimera", {4, 4}, 2));
  EXPECT_EQ(job.run.mini_batch(), 16) << "8 micro-batches of 2";
  EXPECT_EQ(job.run.position(GroupId(0), MicroBatchId(3)), 3);
  EXPECT_EQ(job.run.position(GroupId(1), MicroBatchId(0)), 4);
}

TEST(DataParallelTest, TheReportSaysHowTheRanksAreGrouped) {
  EXPECT_THAT(describe(prepare_job(hybrid("1f1b", {2, 4}, 3))),
              ::testing::HasSubstr("schedule 1f1b: 2 stages on 6 processes, 3 groups of 2 side by side, "
                                   "12 micro-batches of 2 x 16 tokens a step"));
}

TEST(DataParallelTest, MoreRanksThanAMachineRunsAreRefused) {
  EXPECT_EQ(testing::message_of(
                [&] {
                  static_cast<void>(prepare_job(hybrid("1f1b", {4, 4}, 257)));
                },
                "accepted"),
            "1028 ranks (D W T): at most 1024 ranks run on one machine; start them on several "
            "(docs/clusters.md)");
}

}  // namespace
}  // namespace chimera
