// Training over communicators like NCCL's: one queue for each direction of a pair of ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "core/error.h"
#include "generate/registry.h"
#include "support/fake_network.h"
#include "support/schedules.h"
#include "support/training.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr std::int64_t kSteps = 2;

/// Losses of all ranks, as threads over pairwise communicators, or the error that ended them.
struct Outcome {
  std::vector<double> losses;
  std::string error;
};

Outcome train_over_pairs(const Job& job) {
  testing::FakeNetwork network(static_cast<int>(job.num_ranks()), job.rank_groups(), talking_pairs(job));
  Outcome outcome;
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    const auto transport =
        make_pair_transport(network.communicators(static_cast<int>(rank.value()), job.canonical.has_value()));
    Trainer trainer(job, rank, *transport);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const StepMetrics metrics = trainer.train_step(step);
      if (rank == RankId(0)) outcome.losses.push_back(metrics.loss);
    }
  };
  const auto ranks = static_cast<int>(job.num_ranks());
  static_cast<void>(RankThreads(ranks).run(ranks, train, [&](const std::string& why) { network.close(why); }));
  outcome.error = network.why_closed();
  return outcome;
}

TEST(PairQueuesTest, ProgramsOfEveryScheduleMatch) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::with_flags(generator, {4, 8})) {
      Schedule schedule;
      try {
        schedule = generator.generate(shape);
      } catch (const ConfigError&) {  // no such schedule
        continue;
      }
      if (schedule.updates || schedule.stages > 8) continue;
      const TrainOptions options = testing::small_options("gpt2-tiny", generator.name, shape);
      const Outcome outcome = train_over_pairs(prepare_job(options));
      const std::string what = testing::describe(generator.name, shape);
      ASSERT_EQ(outcome.error, "") << what;
      EXPECT_THAT(outcome.losses,
                  ::testing::Pointwise(::testing::DoubleNear(1e-12), testing::train(options, kSteps).losses))
          << what;
    }
  }
}

TEST(PairQueuesTest, CanonicalSumsAndGroupsGiveTheBitsOfThreads) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {2, 4});
  options.reduction = ReductionOrder::Canonical;
  options.dtype = DataType::Float32;
  options.data_parallel = 2;
  const Outcome outcome = train_over_pairs(prepare_job(options));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.losses, ElementsAreArray(testing::train(options, kSteps).losses));
}

TEST(PairQueuesTest, ShardedOptimizersExchangeUpdates) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {2, 4});
  options.data_parallel = 2;
  options.shard_optimizer = true;
  const Outcome outcome = train_over_pairs(prepare_job(options));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.losses,
              ::testing::Pointwise(::testing::DoubleNear(1e-12), testing::train(options, kSteps).losses));
}

TEST(PairQueuesTest, OnlyRanksThatExchangeMessagesHaveACommunicator) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {3, 3});
  EXPECT_THAT(talking_pairs(prepare_job(options)), ElementsAre(RankPair{0, 1}, RankPair{1, 2}));
  options.data_parallel = 2;
  options.replica_layout = ReplicaLayout::Far;
  EXPECT_THAT(talking_pairs(prepare_job(options)),
              ElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{3, 4}, RankPair{4, 5}));
}

}  // namespace
}  // namespace chimera
