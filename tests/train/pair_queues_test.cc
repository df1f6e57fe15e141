// Training over communicators like NCCL's: one queue for each direction of a pair of ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"
#include "support/fake_network.h"
#include "support/schedules.h"
#include "support/training.h"
#include "train/setup/device.h"
#include "transport/forwarding_transport.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::SizeIs;

constexpr std::int64_t kPairSteps = 2;

/// Losses of all ranks, as threads over pairwise communicators, or the error that ended them.
struct Outcome {
  std::vector<double> losses;
  std::string error;
};

Outcome train_over_pairs(const Job& job, const std::function<void(const at::Tensor&)>& records = {}) {
  testing::FakeNetwork network(static_cast<int>(job.num_ranks()), job.rank_groups(),
                               communicating_pairs(job, job.options));
  network.records = records;
  Outcome outcome;
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    const auto transport =
        make_pair_transport(network.communicators(static_cast<int>(rank.value()), job.canonical.has_value()));
    Trainer trainer(job, rank, *transport);
    for (std::int64_t step = 0; step < kPairSteps; ++step) {
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
                  ::testing::Pointwise(::testing::DoubleNear(1e-12), testing::train(options, kPairSteps).losses))
          << what;
    }
  }
}

/// Counts messages whose sends or receives have not been waited for.
class PendingMessages {
 public:
  /// Called by the rank's thread.
  void add(const at::Tensor& message) {
    const std::scoped_lock lock(mutex_);
    auto& own = messages_[std::this_thread::get_id()];
    std::erase_if(own, [](const Message& each) { return each.expired(); });
    own.emplace_back(message.getIntrusivePtr());
    most_ = std::max(most_, own.size());
  }
  /// Maximum over all ranks.
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  using Message = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::mutex mutex_;
  std::map<std::thread::id, std::vector<Message>> messages_;
  std::size_t most_ = 0;
};

TEST(PairQueuesTest, PendingMessagesDoNotGrowWithMicroBatches) {
  const auto most = [](const char* schedule, std::int64_t micro_batches) {
    PendingMessages pending;
    const Job job = prepare_job(testing::small_options("gpt2-tiny", schedule, {4, micro_batches}));
    EXPECT_EQ(train_over_pairs(job, [&](const at::Tensor& message) { pending.add(message); }).error, "");
    return pending.most();
  };
  for (const char* schedule : {"1f1b", "chimera", "zb-h1"}) {
    const std::size_t few = most(schedule, 16);
    EXPECT_GT(few, 0U) << schedule;
    EXPECT_LE(most(schedule, 32), few) << schedule;
  }
}

TEST(PairQueuesTest, CanonicalSumsAndGroupsGiveTheBitsOfThreads) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {2, 4});
  options.numbers.reduction = ReductionOrder::Canonical;
  options.numbers.dtype = DataType::Float32;
  options.parallel.data_parallel = 2;
  const Outcome outcome = train_over_pairs(prepare_job(options));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.losses, ElementsAreArray(testing::train(options, kPairSteps).losses));
}

TEST(PairQueuesTest, ShardedOptimizersExchangeUpdates) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {2, 4});
  options.parallel.data_parallel = 2;
  options.memory.shard_optimizer = true;
  const Outcome outcome = train_over_pairs(prepare_job(options));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.losses,
              ::testing::Pointwise(::testing::DoubleNear(1e-12), testing::train(options, kPairSteps).losses));
}

// A communicator of their own for the T ranks of a worker.
TEST(PairQueuesTest, SumsInsideOpsDoNotDeadlock) {
  for (const char* schedule : {"1f1b", "chimera", "zb-v"}) {
    for (const SequenceParallel tokens : {SequenceParallel::Auto, SequenceParallel::None}) {
      TrainOptions options = testing::small_options("gpt2-tiny", schedule, {2, 4});
      options.parallel.tensor_parallel = 2;
      options.parallel.sequence_parallel = tokens;
      const Outcome outcome = train_over_pairs(prepare_job(options));
      ASSERT_EQ(outcome.error, "") << schedule;
      EXPECT_THAT(outcome.losses,
                  ::testing::Pointwise(::testing::DoubleNear(1e-12), testing::train(options, kPairSteps).losses));
    }
  }
}

TEST(PairQueuesTest, OnlyRanksThatExchangeMessagesHaveACommunicator) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {3, 3});
  EXPECT_THAT(communicating_pairs(prepare_job(options), options), ElementsAre(RankPair{0, 1}, RankPair{1, 2}));
  options.parallel.data_parallel = 2;
  options.parallel.replica_layout = ReplicaLayout::Far;
  EXPECT_THAT(communicating_pairs(prepare_job(options), options),
              ElementsAre(RankPair{0, 1}, RankPair{1, 2}, RankPair{3, 4}, RankPair{4, 5}));
}

/// Trains over pairwise communicators, with `act` before the first step and after each step of rank 0.
template <class Act>
std::string train_and_act(const TrainOptions& options, testing::FakeNetwork& network, const Job& job, Act&& act) {
  const auto ranks = static_cast<int>(options.parallel.data_parallel * 4);
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    const auto transport =
        make_pair_transport(network.communicators(static_cast<int>(rank.value()), job.canonical.has_value()));
    Trainer trainer(job, rank, *transport);
    std::array<double, 1> nothing{};
    for (std::int64_t step = 0; step <= kPairSteps; ++step) {
      transport->all_sum(nothing);  // all ranks are here
      if (rank == RankId(0)) act(step, *transport);
      transport->all_sum(nothing);
      if (step < kPairSteps) static_cast<void>(trainer.train_step(step));
    }
  };
  static_cast<void>(RankThreads(ranks).run(ranks, train, [&](const std::string& why) { network.close(why); }));
  return network.why_closed();
}

/// NCCL connects an algorithm at the first sum whose size selects it.
TEST(PairQueuesTest, StepsConnectNoSums) {
  for (const ReductionOrder reduction : {ReductionOrder::Natural, ReductionOrder::Canonical}) {
    TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 4});
    options.numbers.reduction = reduction;
    const Job job = prepare_job(options);
    testing::FakeNetwork network(4, job.run.rank_groups(), communicating_pairs(job, job.options));
    std::vector<std::size_t> connections;
    const auto count = [&](std::int64_t, Transport&) { connections.push_back(network.sum_connections()); };
    ASSERT_EQ(train_and_act(options, network, job, count), "");
    EXPECT_THAT(connections, SizeIs(kPairSteps + 1));
    EXPECT_THAT(connections, ::testing::Each(connections.front()));
  }
}

TEST(PairQueuesTest, ShardedOptimizersHalveTheBytesOfGradientSums) {
  using Kind = testing::FakeNetwork::Kind;
  const auto bytes_of_a_step = [](bool shards, Kind kind) {
    TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 4});
    options.memory.shard_optimizer = shards;
    const Job job = prepare_job(options);
    testing::FakeNetwork network(4, job.run.rank_groups(), communicating_pairs(job, job.options));
    std::vector<std::int64_t> sent;
    const auto count = [&](std::int64_t, Transport&) { sent.push_back(network.sent_bytes(kind)); };
    EXPECT_EQ(train_and_act(options, network, job, count), "");
    EXPECT_THAT(sent, SizeIs(kPairSteps + 1));
    return sent.at(2) - sent.at(1);
  };
  const std::int64_t all_reduced = bytes_of_a_step(false, Kind::AllReduce);
  EXPECT_GT(all_reduced, 0);
  EXPECT_EQ(bytes_of_a_step(true, Kind::AllReduce), 0);
  // Equal parts are scattered and gathered by one operation.
  EXPECT_EQ(2 * (bytes_of_a_step(true, Kind::Reduce) + bytes_of_a_step(true, Kind::ReduceScatter)), all_reduced);
  const std::int64_t gathered = bytes_of_a_step(true, Kind::Broadcast) + bytes_of_a_step(true, Kind::AllGather);
  EXPECT_GT(gathered, 0);
  EXPECT_LE(2 * gathered, all_reduced) << "parameters without the gaps between aligned gradients";
}

/// A reduction's result exists only on its owner; others have NaN on this network.
TEST(PairQueuesTest, CanonicalShardsHaveTheBitsOfThreads) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {2, 4});
  options.numbers.reduction = ReductionOrder::Canonical;
  options.numbers.dtype = DataType::Float32;
  options.parallel.data_parallel = 2;
  const auto whole = testing::train(options, kPairSteps).losses;
  options.memory.shard_optimizer = true;
  const Outcome outcome = train_over_pairs(prepare_job(options));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.losses, ElementsAreArray(whole));
}

TEST(PairQueuesTest, TimeoutsAreLongerThanSteps) {
  using std::chrono::hours;
  using std::chrono::minutes;
  const TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {4, 4});
  const Job job = prepare_job(options);
  testing::FakeNetwork network(4, job.run.rank_groups(), communicating_pairs(job, job.options));
  std::vector<std::set<std::chrono::milliseconds>> timeouts;
  const auto act = [&](std::int64_t step, Transport& transport) {
    timeouts.push_back(network.timeouts());
    if (step < kPairSteps) return;
    transport.note_longest_step(hours(1));
    transport.note_longest_step(minutes(10));
    timeouts.push_back(network.timeouts());
  };
  ASSERT_EQ(train_and_act(options, network, job, act), "");
  for (std::int64_t step = 0; step <= kPairSteps; ++step)
    EXPECT_THAT(timeouts[static_cast<std::size_t>(step)], ElementsAre(minutes(30))) << "short steps";
  EXPECT_THAT(timeouts.back(), ElementsAre(minutes(30), hours(4))) << "rank 0 has had a step of an hour";
}

/// Compares the noted durations with the times of the steps' sums.
class NotedSteps final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void all_sum(std::span<double> values) override {
    ForwardingTransport::all_sum(values);
    if (notes_ > 0) within_a_step_ = std::max(within_a_step_, Clock::now() - last_note_);
  }
  void note_longest_step(std::chrono::milliseconds longest) override {
    EXPECT_GE(longest, within_a_step_);
    EXPECT_GE(longest, longest_);
    longest_ = longest;
    last_note_ = Clock::now();
    ++notes_;
  }
  [[nodiscard]] int notes() const { return notes_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_note_;
  Clock::duration within_a_step_{};  // From the end of the previous step to the sum of numbers
  std::chrono::milliseconds longest_{1};
  int notes_ = 0;
};

TEST(PairQueuesTest, TheTransportIsToldTheLongestStep) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "none", {1, 2}));
  run_rank_threads(1, job.run.rank_groups(), [&](RankId rank, Transport& alone) {
    NotedSteps transport(alone);
    Trainer trainer(job, rank, transport);
    for (std::int64_t step = 0; step < 3; ++step) static_cast<void>(trainer.train_step(step));
    EXPECT_EQ(transport.notes(), 3);
  });
}

}  // namespace
}  // namespace chimera
