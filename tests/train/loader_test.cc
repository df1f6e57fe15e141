#include "train/loop/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/training.h"

namespace chimera {
namespace {

constexpr std::int64_t kLoaderSteps = 3;

Job job_of(const std::string& model, const std::string& schedule) {
  TrainOptions options = testing::small_options(model, schedule, {4, 4});
  options.updates.steps = kLoaderSteps;
  options.data.validate_every = 1;
  return prepare_job(options);
}

/// The micro-batch that the loader should return.
MicroBatch expected(const Job& job, const Samples& samples, std::int64_t step, MicroBatchId micro_batch) {
  return make_micro_batch(
      samples, job.model.family,
      {step, job.run.first_sample(GroupId(0), micro_batch), job.run.samples_per_op(), job.run.mini_batch()});
}

/// Every worker's stages load the same data as without a prefetching thread, announced in time.
void expect_prefetched(const Job& job) {
  for (std::size_t w = 0; w < job.run.schedule.workers.size(); ++w) {
    Loader loader(job, {GroupId(0), WorkerId(static_cast<std::int64_t>(w))}, at::kCPU);
    for (std::int64_t step = 0; step < kLoaderSteps; ++step) {
      loader.begin_step(step);
      for (const Op& op : job.run.schedule.workers[w]) {
        if (op.kind != OpKind::Forward) continue;
        const MicroBatch batch = loader.training(step, op.stage, op.micro_batch);
        if (!batch.tokens.defined()) continue;
        const MicroBatch right = expected(job, *job.data.training, step, op.micro_batch);
        EXPECT_TRUE(at::equal(batch.tokens, right.tokens)) << to_text(op) << " of step " << step;
        EXPECT_TRUE(at::equal(batch.targets, right.targets)) << to_text(op) << " of step " << step;
      }
    }
    EXPECT_EQ(loader.cache_misses(), 0) << "worker " << w;
  }
}

TEST(LoaderTest, MakesTheSamplesOfEveryStepBeforeTheyAreRead) {
  for (const std::string schedule : {"none", "chimera", "interleaved-1f1b", "pipedream"}) {
    expect_prefetched(job_of("gpt2-tiny", schedule));
    expect_prefetched(job_of("bert-tiny", schedule));
  }
}

TEST(LoaderTest, MiddleStagesLoadNothing) {
  const Job gpt = job_of("gpt2-tiny", "1f1b");
  const Job bert = job_of("bert-tiny", "1f1b");
  const auto loads = [](const Job& job, std::int64_t stage) {
    Loader loader(job, {GroupId(0), WorkerId(stage)}, at::kCPU);
    loader.begin_step(0);
    return loader.training(0, StageId(stage), MicroBatchId(0)).tokens.defined();
  };
  EXPECT_TRUE(loads(gpt, 0) && loads(gpt, 3) && loads(bert, 1));
  EXPECT_FALSE(loads(gpt, 1) || loads(gpt, 2));
}

TEST(LoaderTest, ValidatesOnTheValidationSplit) {
  const Job job = job_of("gpt2-tiny", "1f1b");
  const Loader loader(job, {GroupId(0), WorkerId(0)}, at::kCPU);
  const MicroBatch batch = loader.validation(1, StageId(0), MicroBatchId(2));
  EXPECT_TRUE(at::equal(batch.tokens, expected(job, *job.data.validation, 1, MicroBatchId(2)).tokens));
}

TEST(LoaderTest, CountsNoValidationWindowTwice) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny"}) {
    TrainOptions options = testing::small_options(model, "1f1b", {4, 4});
    options.data.validate_every = 1;
    const std::int64_t windows = prepare_job(options).data.validation->count();
    options.data.micro_batch_size = windows / 3 + 1;  // The fourth micro-batch repeats the first windows
    const Job job = prepare_job(options);
    const Loader loader(job, {GroupId(0), WorkerId(0)}, at::kCPU);
    std::int64_t targets = 0;
    double scales = 0;
    for (std::int64_t m = 0; m < 4; ++m) {
      const MicroBatch batch = loader.validation(0, StageId(0), MicroBatchId(m));
      const auto counted = (batch.targets != kIgnoredTarget).sum().item<std::int64_t>();
      targets += counted;
      scales += static_cast<double>(counted) * batch.token_loss_scale;
    }
    EXPECT_EQ(targets, windows * job.data.validation->targets_per_sample()) << model;
    EXPECT_NEAR(scales, 1, 1e-12) << model;
  }
}

}  // namespace
}  // namespace chimera
