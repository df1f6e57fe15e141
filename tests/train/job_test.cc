// Job shapes are cheap to compute and agree with prepared jobs.

#include "train/setup/job_outputs.h"
#include "train/setup/prepare_job.h"

#include <gtest/gtest.h>

#include "core/cgroup.h"
#include "core/error.h"
#include "model_config/parameters.h"
#include "support/scratch.h"
#include "support/training.h"
#include "train/setup/device.h"
#include "train/setup/job_identity.h"

namespace chimera {
namespace {

TEST(JobShapeTest, NeedsNeitherDataNorACutModel) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  options.data.training = "/nowhere";
  options.schedule.partition = parse_partition("8");  // one stage, but the model has four
  const Job shape = resolve_job(options);
  EXPECT_EQ(shape.run.num_ranks(), 4);
  EXPECT_EQ(shape.run.mini_batch(), 16);
  EXPECT_THROW((void)prepare_job(shape), ConfigError);
  options.schedule.partition = {};
  EXPECT_THROW((void)prepare_job(options), ConfigError);
  options.data.training = testing::text_file();
  const Job job = prepare_job(options);
  EXPECT_EQ(job.run.num_ranks(), shape.run.num_ranks());
  EXPECT_EQ(job.run.mini_batch(), shape.run.mini_batch());
}

TEST(JobShapeTest, HoldsOptionsToTheirLimits) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  options.data.sequence = 1 << 20;
  EXPECT_THROW((void)resolve_job(options), ConfigError);
}

TEST(JobShapeTest, ASequenceThatIsNotGivenHasAtMostAllPositions) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  const std::int64_t positions = find_model("gpt2-tiny").positions;
  options.data.usual_sequence = true;
  options.data.sequence = positions + 1;
  EXPECT_EQ(resolve_job(options).options.data.sequence, positions);
  options.data.sequence = 8;
  EXPECT_EQ(resolve_job(options).options.data.sequence, 8);
}

TEST(LearningRateTest, ItsDefaultsDependOnTheRun) {
  const auto chosen = [](std::int64_t steps, TrainOptions options = {}) {
    options.updates.steps = steps;
    options.updates.usual_peak = options.updates.usual_warmup = true;
    choose_usual_rates(options);
    EXPECT_EQ(find_invalid_option(options.updates.learning_rate, steps), "") << steps;
    return options.updates.learning_rate;
  };
  for (const auto& [steps, warmup] : {std::pair(1, 0), {2, 1}, {4, 3}, {5, 4}, {100, 5}, {1000, 50}, {100'000, 2000}})
    EXPECT_EQ(chosen(steps).warmup, warmup) << steps;
  EXPECT_EQ(chosen(100).peak, 1e-3);
  EXPECT_EQ(chosen(100, {.model = {.from = "model"}}).peak, 5e-5);
  const LearningRate wsd{.shape = LearningRateShape::Wsd, .cooldown = 98};
  EXPECT_EQ(chosen(100, {.updates = {.learning_rate = wsd}}).warmup, 2);
  TrainOptions given;
  given.model.from = "model";
  choose_usual_rates(given);
  EXPECT_EQ(given.updates.learning_rate.peak, 1e-3);
  EXPECT_EQ(given.updates.learning_rate.warmup, 0);
}

TEST(JobTest, TheReportOfARunThatEndedFirstIsKept) {
  const testing::Scratch scratch;
  Job job;
  const std::string path = scratch.path("report.html");
  write_final_output(job.replaces_outputs(), "--report", path, "first");
  write_final_output(job.replaces_outputs(), "--report", path, "second");
  write_final_output(job.replaces_outputs(), "--report", path, "third");
  EXPECT_EQ(testing::read_file(path), "first");
  EXPECT_EQ(testing::read_file(path + ".2"), "second");
  EXPECT_EQ(testing::read_file(path + ".3"), "third");
  job.options.output.overwrite = true;
  write_final_output(job.replaces_outputs(), "--report", path, "fourth");
  EXPECT_EQ(testing::read_file(path), "fourth");
}

TEST(JobTest, OnlyTheRanksOfThisHostNeedItsMemoryAndItsCores) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {4, 4});
  options.parallel.data_parallel = 8;
  options.numbers.dtype = DataType::Float32;
  options.model.overrides.hidden = 1024;
  const auto bytes_of_group = [&] {  // weights, gradients and two moments
    return 16.0 * static_cast<double>(parameter_count(resolve_job(options).model));
  };
  for (options.model.overrides.layers = 4; 2 * bytes_of_group() < available_memory_bytes();)
    options.model.overrides.layers = 2 * *options.model.overrides.layers;
  EXPECT_THROW((void)prepare_job(options), ConfigError) << "eight groups of which each takes half the memory or more";
  options.device.local_ranks = 2;  // half a group
  const Job job = prepare_job(options);
  EXPECT_EQ(intra_op_threads(job.options, job.local_ranks()), std::max(available_cores() / 2, 1));
  options.device.local_ranks = 1000;  // too many ranks are rejected later, at the rendezvous
  EXPECT_EQ(resolve_job(options).local_ranks(), 32);
}

TEST(JobShapeTest, OnlyScheduledPairsRunConcurrently) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 8});
  options.schedule.pairs = Pairs::Together;
  EXPECT_THROW((void)resolve_job(options), ConfigError);
  options.schedule.name = "dualpipe";
  EXPECT_EQ(resolve_job(options).run.num_ranks(), 4);
  const Job job = prepare_job(options);
  const auto is_pair = [](const Instruction& instruction) { return begins_pair(instruction); };
  EXPECT_TRUE(std::ranges::any_of(job.programs.training.workers[0], is_pair));
  options.schedule.pairs = Pairs::InOrder;
  EXPECT_FALSE(std::ranges::any_of(prepare_job(options).programs.training.workers[0], is_pair));
}

/// They have a hash of all bytes of large data, which takes a minute for 40 GB.
TEST(JobIdentityTest, SamplesAreNotComparedWithHashesOfOlderCheckpoints) {
  const auto run = [](const char* key, const char* hash) {
    return nlohmann::ordered_json{{"data", {{key, hash}, {"seed", 1}}}};
  };
  const RunDifferences older = differences(run("content", "1"), run("sampled_content", "2"));
  EXPECT_TRUE(older.data.empty());
  EXPECT_THAT(older.other, ::testing::ElementsAre(::testing::HasSubstr("data.content: not compared")));
  EXPECT_EQ(differences(run("content", "1"), run("content", "2")).data.size(), 1U);
  EXPECT_EQ(differences(run("sampled_content", "1"), run("sampled_content", "2")).data.size(), 1U);
  EXPECT_EQ(differences(run("sampled_content", "1"), run("content", "1")).data.size(), 2U);
}

}  // namespace
}  // namespace chimera
