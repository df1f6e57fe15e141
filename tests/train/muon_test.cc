// Training with Muon, whose iterations the copies of a stage share: the results of the unpipelined model, and the same
// bits for all schedules, depths, widths and divisions of work.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/checkpoint_folder.h"
#include "support/scratch.h"
#include "support/training.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMuonSteps = 4;

TrainOptions muon(const std::string& schedule, const PipelineShape& shape, std::int64_t data_parallel = 1,
                  const std::string& model = "gpt2-tiny") {
  TrainOptions options = testing::small_options(model, schedule, shape);
  options.parallel.data_parallel = data_parallel;
  options.updates.clip = 0.5;  // clips
  options.updates.optimizer = {.kind = OptimizerKind::Muon, .weight_decay = 0.1};
  options.updates.learning_rate.peak = 0.01;
  return options;
}

void expect_equal(const testing::Trained& actual, const testing::Trained& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(actual.losses[step], expected.losses[step], tolerance * expected.losses[step]) << what;
  EXPECT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, copies] : actual.parameters) {
    for (const at::Tensor& copy : copies)
      EXPECT_LE((copy - expected.parameters.at(name)[0]).abs().max().item<double>(), tolerance) << what << ' ' << name;
  }
}

TEST(MuonTrainingTest, EverySynchronousScheduleEqualsTheUnpipelinedModel) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    const testing::Trained expected = testing::train(muon("none", {1, 8}, 1, model), kMuonSteps);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const std::string schedule : {"1f1b", "zb-h1", "chimera", "chimera-zb"}) {
      for (const std::int64_t stages : {2, 4}) {
        for (const std::int64_t groups : {1, 2}) {
          for (const bool shards : {false, true}) {
            if (model != "gpt2-tiny" && (stages == 4 || (groups == 2) != shards)) continue;
            TrainOptions options = muon(schedule, {stages, 8 / groups}, groups, model);
            options.memory.shard_optimizer = shards;
            expect_equal(testing::train(options, kMuonSteps), expected, 1e-10,
                         model + " " + schedule + " D" + std::to_string(stages) + " W" + std::to_string(groups));
          }
        }
      }
    }
  }
}

TEST(MuonTrainingTest, CanonicalSumsGiveTheSameBitsWhoeverIterates) {
  const auto canonical = [](const std::string& schedule, const PipelineShape& shape, std::int64_t groups, bool shards) {
    TrainOptions options = muon(schedule, shape, groups);
    options.numbers.dtype = DataType::Float32;
    options.numbers.reduction = ReductionOrder::Canonical;
    options.model.overrides.tied = true;
    options.memory.shard_optimizer = shards;
    return options;
  };
  const testing::Trained expected = testing::train(canonical("none", {1, 8}, 1, false), kMuonSteps);
  for (const std::string schedule : {"1f1b", "zb-h1", "chimera", "chimera-zb"}) {
    for (const std::int64_t groups : {1, 2}) {
      for (const bool shards : {false, true}) {
        const PipelineShape shape{groups == 1 ? 4 : 2, 8 / groups};
        const testing::Trained actual = testing::train(canonical(schedule, shape, groups, shards), kMuonSteps);
        const std::string what = schedule + " W" + std::to_string(groups) + (shards ? " sharded" : "");
        EXPECT_EQ(actual.losses, expected.losses) << what;
        EXPECT_EQ(actual.gradient_norms, expected.gradient_norms) << what;
        EXPECT_EQ(actual.parameters_hashes, expected.parameters_hashes) << what;
      }
    }
  }
}

TEST(MuonTrainingTest, ShardsKeepTheBitsOfLayersInBfloat16) {
  TrainOptions options = muon("chimera", {2, 4});
  options.numbers.dtype = DataType::BFloat16;
  options.numbers.force_bfloat16 = true;
  options.numbers.reduction = ReductionOrder::Canonical;
  const testing::Trained expected = testing::train(options, kMuonSteps);
  options.memory.shard_optimizer = true;
  const testing::Trained actual = testing::train(options, kMuonSteps);
  EXPECT_EQ(actual.gradient_norms, expected.gradient_norms);
  EXPECT_EQ(actual.parameters_hashes, expected.parameters_hashes);
}

TEST(MuonTrainingTest, IterationsInBfloat16KeepTheBitsToo) {
  TrainOptions options = muon("none", {1, 4});
  options.numbers.dtype = DataType::Float32;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.updates.optimizer.muon.iterations = DataType::BFloat16;
  const testing::Trained expected = testing::train(options, kMuonSteps);
  options.schedule.name = "chimera";
  options.schedule.shape = {4, 4};
  EXPECT_EQ(testing::train(options, kMuonSteps).parameters_hashes, expected.parameters_hashes);
  options.updates.optimizer.muon.iterations = DataType::Float32;
  EXPECT_NE(testing::train(options, kMuonSteps).parameters_hashes, expected.parameters_hashes);
}

TEST(MuonTrainingTest, ReplicasTogetherHoldShardedStateOnce) {
  const auto bytes_of_all = [](bool shards) {
    TrainOptions options = muon("chimera", {2, 4});
    options.memory.shard_optimizer = shards;
    const Job job = prepare_job(options);
    std::int64_t bytes = 0;
    run_rank_threads(2, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
      const Trainer trainer(job, rank, transport);
      static std::mutex mutex;
      const std::scoped_lock lock(mutex);
      bytes += testing::state_bytes(trainer.model().optimizer());
    });
    return bytes;
  };
  EXPECT_EQ(bytes_of_all(false), 2 * bytes_of_all(true));
}

TEST(MuonTrainingTest, ResumesInOtherLayouts) {
  const auto run = [](TrainOptions options, std::int64_t from, const std::string& save, const std::string& resume) {
    options.numbers.dtype = DataType::Float32;
    options.numbers.reduction = ReductionOrder::Canonical;
    options.updates.steps = kMuonSteps;
    if (!save.empty()) options.checkpoint = {.folder = save, .every = {.steps = 2, .seconds = 0}, .keep = {}};
    if (!resume.empty()) options.resume.from = checkpoint_path(resume, 2);
    const Job job = prepare_job(options);
    std::vector<std::string> hashes;
    run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
      at::set_num_threads(1);
      Trainer trainer(job, rank, transport);
      static_cast<void>(trainer.run([&](const StepMetrics& metrics) {
        if (rank == RankId(0)) hashes.push_back(metrics.parameters_hash.value_or(""));
      }));
      static_cast<void>(trainer.finish_checkpoints());
    });
    EXPECT_EQ(std::ssize(hashes), kMuonSteps - from);
    return hashes;
  };
  const testing::Scratch scratch;
  const auto whole = run(muon("chimera", {4, 4}), 0, scratch.path("run"), "");
  TrainOptions sharded = muon("chimera-zb", {2, 2}, 2);
  sharded.memory.shard_optimizer = true;
  EXPECT_THAT(run(sharded, 2, scratch.path("sharded"), scratch.path("run")), ElementsAre(whole[2], whole[3]));
  const auto other = run(sharded, 0, scratch.path("other"), "");
  EXPECT_EQ(other, whole) << "saving changes nothing";
  EXPECT_THAT(run(muon("1f1b", {2, 4}), 2, "", scratch.path("other")), ElementsAre(whole[2], whole[3]));
}

}  // namespace
}  // namespace chimera
