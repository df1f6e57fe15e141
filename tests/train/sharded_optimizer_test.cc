// Optimizer state sharded over the replicas of a stage: the same bits, less memory.

#include "engine/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "core/error.h"
#include "support/fake_device.h"
#include "support/logging_transport.h"
#include "support/training.h"
#include "transport/forwarding_transport.h"
#include "transport/groups.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

TEST(ShardedOptimizerTest, OwnersHaveConsecutiveParametersOfSimilarSize) {
  EXPECT_THAT(owners_of({4, 3, 1, 4}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(owners_of({95, 2, 3}, 2), ElementsAre(0, 1, 1)) << "an embedding, then blocks";
  EXPECT_THAT(owners_of({2, 3, 95}, 2), ElementsAre(0, 0, 1)) << "blocks, then a head";
  EXPECT_THAT(owners_of({5, 5}, 3), ElementsAre(0, 2)) << "the second member owns nothing";
  EXPECT_THAT(owners_of({5, 5}, 1), ElementsAre(0, 0));
}

TrainOptions sharded_options(const std::string& schedule, const PipelineShape& shape, std::int64_t data_parallel = 1) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, shape);
  options.parallel.data_parallel = data_parallel;
  options.updates.clip = 0.5;  // clips
  options.updates.learning_rate.peak = 0.01;
  return options;
}

void expect_same_with_and_without(TrainOptions options) {
  const auto whole = testing::train(options, 4);
  options.memory.shard_optimizer = true;
  const auto sharded = testing::train(options, 4);
  const std::string what =
      options.schedule.name + " " + to_text(options.updates.optimizer.kind) + " " + to_text(options.numbers.reduction);
  EXPECT_EQ(sharded.losses, whole.losses) << what;
  EXPECT_EQ(sharded.gradient_norms, whole.gradient_norms) << what;
  EXPECT_EQ(sharded.parameters_hashes, whole.parameters_hashes) << what;
  EXPECT_LT(whole.losses.back(), whole.losses.front()) << what << " does not learn";
  for (const auto& [name, copies] : sharded.parameters) {
    for (const at::Tensor& copy : copies) EXPECT_TRUE(at::equal(copy, whole.parameters.at(name)[0])) << what << name;
  }
}

TEST(ShardedOptimizerTest, ComputesTheSameBitsWithTwoCopiesOfAStage) {
  expect_same_with_and_without(sharded_options("chimera", {2, 4}));
  expect_same_with_and_without(sharded_options("chimera", {4, 8}));
  expect_same_with_and_without(sharded_options("dualpipe", {4, 8}));
}

TEST(ShardedOptimizerTest, ComputesTheSameBitsWithMoreCopies) {
  expect_same_with_and_without(sharded_options("chimera", {4, 8, 4}, 2));
  expect_same_with_and_without(sharded_options("interleaved-1f1b", {2, 4, 2, 2}, 3));
  expect_same_with_and_without(sharded_options("gpipe", {1, 2}, 8));
}

TEST(ShardedOptimizerTest, ComputesTheSameBitsWithEveryOtherFlag) {
  TrainOptions options = sharded_options("chimera", {4, 8}, 2);
  options.numbers.dtype = DataType::Float32;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.memory.recompute = {StageRule::Full};
  options.model.dropout = 0.1;
  options.parallel.replica_layout = ReplicaLayout::Far;
  options.schedule.sync = AllReducePlacement::Eager;
  expect_same_with_and_without(options);
  for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Lamb}) {
    options.updates.optimizer.kind = kind;
    expect_same_with_and_without(options);
  }
}

TEST(ShardedOptimizerTest, AStageHeldByOneWorkerIsNotSharded) {
  expect_same_with_and_without(sharded_options("1f1b", {4, 4}));
  expect_same_with_and_without(sharded_options("none", {1, 4}));
}

TEST(ShardedOptimizerTest, ATiedMatrixHasOneOwner) {
  TrainOptions options = sharded_options("chimera", {4, 8}, 2);
  options.model.overrides.tied = true;
  expect_same_with_and_without(options);
  options.updates.optimizer.kind = OptimizerKind::Lamb;
  expect_same_with_and_without(options);
  options.schedule.name = "1f1b";
  options.parallel.data_parallel = 1;
  expect_same_with_and_without(options);
}

class FourParameters final : public ParameterGroup {
 public:
  explicit FourParameters(at::Device device = at::kCPU)
      : ParameterGroup({{"a", at::ones({4}, device)},
                        {"b", at::ones({3}, device)},
                        {"c", at::ones({1}, device)},
                        {"d", at::ones({4}, device)}}) {}
};

TEST(ShardedOptimizerTest, ShardsOfTheGradientsStartAtTheOwnersParameters) {
  testing::FakeDevice::install();
  for (const at::Device device : {at::Device(at::kCPU), at::Device(testing::kFakeDevice, 0)}) {
    FourParameters group(device);  // at 0, 16, 32 and 48 of 52 elements
    EXPECT_THAT(shard_sizes(group, 1), ElementsAre(52));
    EXPECT_THAT(shard_sizes(group, 2), ElementsAre(32, 20));
    EXPECT_THAT(shard_sizes(group, 3), ElementsAre(16, 32, 4));
    EXPECT_THAT(shard_sizes(group, 6), ElementsAre(0, 16, 16, 16, 0, 4));
  }
}

/// Spoils all gradients of other owners after each reduce-scatter.
class OnlyOwnSums final : public ForwardingTransport {
 public:
  OnlyOwnSums(Transport& ranks, RankGroups groups, RankId rank)
      : ForwardingTransport(ranks), groups_(std::move(groups)), rank_(rank) {}

  std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) override {
    if (!sum.scatters()) throw Error("an all-reduce of gradients");
    ++scattered_;
    const auto own = index_in_group(groups_, group, rank_);
    auto pieces = sum.gradients.split_with_sizes(sum.counts);
    return std::make_unique<Spoiled>(ForwardingTransport::start_sum(group, std::move(sum)), std::move(pieces), own);
  }
  [[nodiscard]] int scattered() const { return scattered_; }

 private:
  class Spoiled final : public Pending {
   public:
    Spoiled(std::unique_ptr<Pending> sum, std::vector<at::Tensor> shards, std::size_t own)
        : sum_(std::move(sum)), shards_(std::move(shards)), own_(own) {}
    at::Tensor wait() override {
      at::Tensor sum = sum_->wait();
      for (std::size_t member = 0; member < shards_.size(); ++member) {
        if (member != own_) shards_[member].fill_(std::numeric_limits<double>::quiet_NaN());
      }
      return sum;
    }

   private:
    std::unique_ptr<Pending> sum_;
    std::vector<at::Tensor> shards_;
    std::size_t own_;
  };

  RankGroups groups_;
  RankId rank_;
  int scattered_ = 0;
};

TEST(ShardedOptimizerTest, NothingReadsTheSumsOfOtherOwners) {
  for (const ReductionOrder reduction : {ReductionOrder::Natural, ReductionOrder::Canonical}) {
    TrainOptions options = sharded_options("chimera", {2, 4}, 2);
    options.model.overrides.tied = true;
    options.numbers.reduction = reduction;
    const auto whole = testing::train(options, 3);
    options.memory.shard_optimizer = true;
    const Job job = prepare_job(options);
    run_rank_threads(static_cast<int>(job.run.num_ranks()), job.run.rank_groups(), [&](RankId rank, Transport& ranks) {
      at::set_num_threads(1);
      OnlyOwnSums transport(ranks, job.run.rank_groups(), rank);
      Trainer trainer(job, rank, transport);
      for (std::size_t step = 0; step < 3; ++step) {
        const StepMetrics metrics = trainer.train_step(static_cast<std::int64_t>(step));
        EXPECT_EQ(metrics.loss, whole.losses[step]);
        EXPECT_EQ(metrics.gradient_norm, whole.gradient_norms[step]);
      }
      EXPECT_EQ(transport.scattered(), 3 * 3) << "two stages and the tied matrix in each step";
    });
  }
}

TEST(ShardedOptimizerTest, TwoRanksUpdateEachShard) {
  TrainOptions options = sharded_options("chimera", {4, 8, 4});
  options.numbers.reduction = ReductionOrder::Canonical;
  options.model.overrides.tied = true;
  options.recovery.recover = Recover::Reroute;
  expect_same_with_and_without(options);
  options.updates.optimizer.kind = OptimizerKind::Muon;
  expect_same_with_and_without(options);
  EXPECT_EQ(
      shard_holders({RankId(2), RankId(5), RankId(6), RankId(7)}, true),
      (RankGroups{{RankId(2), RankId(5)}, {RankId(5), RankId(2)}, {RankId(6), RankId(7)}, {RankId(7), RankId(6)}}));
  EXPECT_EQ(shard_holders({RankId(0), RankId(1), RankId(2)}, true),
            (RankGroups{{RankId(0), RankId(1)}, {RankId(1), RankId(2)}, {RankId(2), RankId(0)}}));
}

TEST(ShardedOptimizerTest, GathersParametersStageByStage) {
  FourParameters first;
  FourParameters second;
  LoggingTransport transport;
  const RankGroups groups = {{RankId(0), RankId(1)}, {RankId(1)}, {RankId(1), RankId(0)}};
  const auto optimizer = make_sharded_optimizer({}, {{ParameterGroupId(0), &first}, {ParameterGroupId(2), &second}},
                                                groups, RankId(0), transport);
  EXPECT_EQ(testing::state_bytes(*optimizer), 2 * (7 + 5) * 4) << "two moments of the own ones";
  optimizer->step(0.1, 1);
  EXPECT_THAT(transport.lines(),
              ElementsAre("all-gather stage 0: 7 + 5 of [52] Float", "all-gather stage 2: 7 + 5 of [52] Float",
                          "wait all-gather stage 0", "wait all-gather stage 2"));
}

TEST(ShardedOptimizerTest, ReplicasTogetherHoldTheStateOnce) {
  const auto state_of_all = [](bool shards, Recover recover = Recover::None) {
    TrainOptions options = sharded_options("chimera", {2, 2}, 2);
    options.memory.shard_optimizer = shards;
    options.recovery.recover = recover;
    const Job job = prepare_job(options);
    std::int64_t bytes = 0;
    ThreadHub hub(static_cast<int>(job.run.num_ranks()), job.run.rank_groups());
    for (std::int64_t rank = 0; rank < job.run.num_ranks(); ++rank) {
      const auto transport = hub.transport(RankId(rank));
      bytes += testing::state_bytes(Trainer(job, RankId(rank), *transport).model().optimizer());
    }
    return bytes;
  };
  EXPECT_EQ(state_of_all(false), 4 * state_of_all(true)) << "two pipelines in each of two groups";
  EXPECT_EQ(state_of_all(true, Recover::Reroute), 2 * state_of_all(true)) << "a lost rank's shard has another holder";
}

/// GiB that the error message names for a model too large for any machine.
double needed(TrainOptions options) {
  options.model.overrides.hidden = 1'000'000;
  try {
    static_cast<void>(prepare_job(options));
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    const auto needs = message.find(" need");
    if (needs != std::string::npos) return std::stod(message.substr(message.find(' ', needs + 1)));
  }
  ADD_FAILURE() << "a model of any size is accepted";
  return 0;
}

TEST(ShardedOptimizerTest, MemoryCheckCountsShards) {
  TrainOptions options = sharded_options("chimera", {2, 2});
  const double copy = needed(sharded_options("none", {1, 2})) / 4;  // weights, gradients, two moments
  EXPECT_NEAR(needed(options) / copy, 8, 1e-3) << "two copies of everything";
  options.memory.shard_optimizer = true;
  EXPECT_NEAR(needed(options) / copy, 6, 1e-3) << "the moments once";
  options.parallel.data_parallel = 2;
  options.recovery.recover = Recover::Twin;
  EXPECT_NEAR(needed(options) / copy, 12, 1e-3) << "four copies, and the moments twice";
  options.parallel.data_parallel = 1;
  options.recovery.recover = Recover::None;
  options.numbers.reduction = ReductionOrder::Canonical;
  EXPECT_NEAR(needed(options) / copy, 8, 1e-3) << "and each copy's block";
  options.updates.optimizer.kind = OptimizerKind::Sgd;
  EXPECT_NEAR(needed(options) / copy, 6, 1e-3);
}

}  // namespace
}  // namespace chimera
