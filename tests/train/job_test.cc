// A job's shape is cheap, and what it says is what the prepared job has.

#include "train/job.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/training.h"

namespace chimera {
namespace {

TEST(JobShapeTest, NeedsNeitherDataNorACutModel) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  options.data = "/nowhere";
  options.partition = parse_partition("8");  // of one stage, where there are four
  const JobShape shape = job_shape(options);
  EXPECT_EQ(shape.num_ranks(), 4);
  EXPECT_EQ(shape.mini_batch(), 16);
  EXPECT_THROW((void)prepare_job(shape), ConfigError);
  options.partition = {};
  EXPECT_THROW((void)prepare_job(options), ConfigError);
  options.data = testing::text_file();
  const Job job = prepare_job(options);
  EXPECT_EQ(job.num_ranks(), shape.num_ranks());
  EXPECT_EQ(job.mini_batch(), shape.mini_batch());
}

TEST(JobShapeTest, HoldsOptionsToTheirLimits) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  options.sequence = 1 << 20;
  EXPECT_THROW((void)job_shape(options), ConfigError);
}

TEST(JobShapeTest, OnlyScheduledPairsRunSideBySide) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  options.pairs = Pairs::Together;
  EXPECT_THROW((void)job_shape(options), ConfigError);
  options.schedule = "dualpipe";
  EXPECT_EQ(job_shape(options).num_ranks(), 4);
  const Job job = prepare_job(options);
  const auto is_pair = [](const Instruction& instruction) { return begins_pair(instruction); };
  EXPECT_TRUE(std::ranges::any_of(job.training.workers[0], is_pair));
  options.pairs = Pairs::InOrder;
  EXPECT_FALSE(std::ranges::any_of(prepare_job(options).training.workers[0], is_pair));
}

}  // namespace
}  // namespace chimera
