// Jobs without lost ranks: their steps have the bits of the whole job.

#include "train/setup/rerouted_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "engine/adaptation.h"
#include "plan/machine.h"
#include "support/fake_accelerator.h"
#include "support/fake_device.h"
#include "support/scratch.h"
#include "support/training.h"
#include "train/observe/step_costs.h"
#include "train/setup/device.h"
#include "train/setup/rank_context.h"
#include "transport/pairs/pair_transport.h"
#include "transport/stream.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAreArray;

constexpr std::int64_t kReroutedSteps = 3;

/// 8 micro-batches per step, over all groups.
TrainOptions rerouted_options(const std::string& schedule, const PipelineShape& shape, std::int64_t groups = 1) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, shape);
  options.numbers.dtype = DataType::Float32;
  options.parallel.data_parallel = groups;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.updates.clip = 0.5;
  options.model.dropout = 0.1;
  options.model.overrides.tied = true;
  return options;
}

void expect_bits_without(const TrainOptions& options, const std::vector<RankId>& lost) {
  static const testing::Trained whole = testing::train(rerouted_options("none", {1, 8}), kReroutedSteps);
  const testing::Trained rest = testing::train(rerouted_job(prepare_job(options), {.lost = lost}), kReroutedSteps);
  EXPECT_THAT(rest.losses, ElementsAreArray(whole.losses));
  EXPECT_THAT(rest.gradient_norms, ElementsAreArray(whole.gradient_norms));
  EXPECT_THAT(rest.parameters_hashes, ElementsAreArray(whole.parameters_hashes));
}

TEST(ReroutedJobTest, WithoutAnyRankAllBitsStay) {
  for (const std::string name : {"chimera", "chimera-zb", "dualpipev"}) {
    const std::int64_t workers = name == "dualpipev" ? 2 : 4;
    for (std::int64_t rank = 0; rank < workers; ++rank) {
      SCOPED_TRACE(name + " without rank " + std::to_string(rank));
      if (name == "dualpipev") {
        expect_bits_without(rerouted_options(name, {2, 4}, 2), {RankId(rank)});
      } else {
        expect_bits_without(rerouted_options(name, {4, 8}), {RankId(rank)});
      }
    }
  }
}

TEST(ReroutedJobTest, WithoutSeveralRanksAllBitsStay) {
  expect_bits_without(rerouted_options("chimera", {4, 8}), {RankId(0), RankId(2)});
  expect_bits_without(rerouted_options("chimera-zb", {4, 8, 4}), {RankId(1), RankId(3)});
  for (const ReplicaLayout layout : {ReplicaLayout::Near, ReplicaLayout::Far}) {
    for (const std::string name : {"1f1b", "zb-h1", "chimera", "gpipe"}) {
      SCOPED_TRACE(name);
      TrainOptions options = rerouted_options(name, {2, 4}, 2);
      options.parallel.replica_layout = layout;
      expect_bits_without(options, {RankId(1)});
      expect_bits_without(options, {RankId(0), RankId(3)});
    }
  }
}

TEST(ReroutedJobTest, NaturalSumsEqualTheUnpipelinedModel) {
  TrainOptions options = testing::small_options("bert-tiny", "chimera", {4, 8});
  options.data.validate_every = kReroutedSteps;
  const testing::Trained whole = testing::train_unpipelined(options, kReroutedSteps);
  const testing::Trained rest =
      testing::train(rerouted_job(prepare_job(options), {.lost = {RankId(3)}}), kReroutedSteps);
  for (std::size_t step = 0; step < whole.losses.size(); ++step) {
    EXPECT_NEAR(rest.losses[step], whole.losses[step], 1e-12 * whole.losses[step]);
    EXPECT_NEAR(rest.gradient_norms[step], whole.gradient_norms[step], 1e-10 * whole.gradient_norms[step]);
  }
  EXPECT_NEAR(rest.validation_losses.front(), whole.validation_losses.front(), 1e-12 * whole.validation_losses.front());
}

/// Runs two steps of each job, one after another. Ranks keep their state; ranks that the job before did without have
/// none. Returns the hashes of the parameters after each step.
std::vector<std::string> hashes_of_jobs(const std::vector<Job>& jobs) {
  std::vector<std::optional<Trainer::Kept>> kept(jobs.front().launched_count());
  std::vector<std::string> hashes;
  for (const Job& job : jobs) {
    const auto first = std::ssize(hashes);
    std::vector<std::optional<Trainer::Kept>> next(kept.size());
    run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
      at::set_num_threads(1);
      const PooledStreamGuard stream(device_of(job.options, rank));
      const std::size_t launched = job.launched_rank(rank).index();
      std::optional<Trainer> trainer;
      if (kept[launched]) {
        trainer.emplace(job, rank, transport, WeightOrigin::Own, &*kept[launched]);
      } else {
        trainer.emplace(job, rank, transport, first > 0 ? WeightOrigin::Replacement : WeightOrigin::Own);
      }
      if (first > 0) trainer->rejoin();
      for (std::int64_t step = first; step < first + 2; ++step) {
        const StepMetrics metrics = trainer->train_step(step);
        if (rank == RankId(0)) hashes.push_back(*metrics.parameters_hash);
      }
      trainer->drop_step();
      next[launched] = trainer->keep();
    });
    kept = std::move(next);
  }
  return hashes;
}

TEST(ReroutedJobTest, TrainersPassTheirStateToTheNextJob) {
  const Job whole = prepare_job(rerouted_options("chimera", {4, 8}));
  const Job rest = rerouted_job(whole, {.lost = {RankId(2)}});
  EXPECT_THAT(rest.launched_ranks, ElementsAre(RankId(0), RankId(1), RankId(3)));
  EXPECT_EQ(rest.launched_rank(RankId(2)), RankId(3));
  EXPECT_THAT(hashes_of_jobs({whole, rest, whole}),
              ElementsAreArray(testing::train(rerouted_options("none", {1, 8}), 6).parameters_hashes));
}

/// The job with these factors of its ranks, and perhaps without some.
Job slow_job(const Job& launched, const std::vector<double>& factors, const std::vector<RankId>& lost = {},
             const std::vector<LinkDelay>& delays = {}) {
  AdaptationTask task{.launched = launched.run,
                      .block_size = block_size_of(launched),
                      .now = {.lost = lost},
                      .factors = factors,
                      .delays = delays,
                      .costs = CostModel::uniform(launched.run.schedule, {1, 2, 1, 1}),
                      .step_seconds = 1,
                      .change_seconds = 0};
  task.costs.workers.resize(factors.size());
  for (std::size_t rank = 0; rank < factors.size(); ++rank)
    task.costs.workers[worker_number(launched.run.ranks, RankId(static_cast<std::int64_t>(rank)))] = factors[rank];
  if (!delays.empty()) {
    auto& alphas = task.costs.links.emplace().matrix.emplace().alphas;
    alphas.assign(factors.size(), std::vector<double>(factors.size(), 0));
    for (const auto& [one, other, seconds] : delays)
      alphas[one.index()][other.index()] = alphas[other.index()][one.index()] = seconds;
  }
  const auto found = adapted_run(task, 2);
  EXPECT_TRUE(found);
  Job job = rerouted_job(launched, found ? found->change : RunChange{.lost = lost});
  EXPECT_EQ(job.factors, delays.empty() ? factors : std::vector<double>());
  EXPECT_EQ(job.delays, delays);
  return job;
}

TEST(ReroutedJobTest, SlowLinksKeepAllBits) {
  static const std::vector<std::string> expected =
      testing::train(rerouted_options("none", {1, 8}), 6).parameters_hashes;
  const Job whole = prepare_job(rerouted_options("chimera-zb", {4, 8}));
  EXPECT_THAT(hashes_of_jobs({whole, slow_job(whole, {1, 1, 1, 1}, {}, {{RankId(1), RankId(2), 4}}), whole}),
              ElementsAreArray(expected));
}

/// Ranks become slow, lost while others are slow, and fast again.
TEST(ReroutedJobTest, SlowRanksKeepAllBits) {
  static const std::vector<std::string> expected =
      testing::train(rerouted_options("none", {1, 8}), 8).parameters_hashes;
  for (const std::string name : {"chimera", "chimera-zb", "1f1b"}) {
    SCOPED_TRACE(name);
    const bool has_groups = name == "1f1b";
    TrainOptions options = has_groups ? rerouted_options(name, {2, 4}, 2) : rerouted_options(name, {4, 8});
    const Job whole = prepare_job(options);
    EXPECT_THAT(hashes_of_jobs({whole, slow_job(whole, {1, 2, 1, 1}), slow_job(whole, {3, 1, 1, 1.5}), whole}),
                ElementsAreArray(expected));
    EXPECT_THAT(hashes_of_jobs({slow_job(whole, {1, 1, 2, 1}), slow_job(whole, {3, 1, 1, 1}, {RankId(2)}),
                                rerouted_job(whole, {.lost = {RankId(2)}}), whole}),
                ElementsAreArray(expected));
  }
}

TEST(ReroutedJobTest, AResumedRunBeginsWithTheChosenOrder) {
  const testing::Scratch scratch;
  TrainOptions options = rerouted_options("chimera-zb", {4, 8});
  options.updates.steps = 6;
  TrainOptions whole = rerouted_options("none", {1, 8});
  whole.updates.steps = options.updates.steps;
  const std::vector<std::string> expected = testing::train(whole, 6).parameters_hashes;
  options.checkpoint.folder = scratch.path("run");
  const Job launched = prepare_job(options);
  run_rank_threads(4, launched.rank_groups(), [&](RankId rank, Transport& transport) {
    at::set_num_threads(1);
    Trainer trainer(launched, rank, transport);
    trainer.run([](const StepMetrics&) {}, 3);
    EXPECT_TRUE(trainer.finish_checkpoints());
  });
  options.resume.from = options.checkpoint.folder;
  EXPECT_EQ(in_chosen_order(prepare_job(options)).run.schedule, launched.run.schedule) << "no file";
  const Job slow = slow_job(launched, {1, 2, 1, 1});
  save_order(options.checkpoint.folder, {.schedule = std::make_shared<const Schedule>(slow.run.schedule)});
  const Job resumed = in_chosen_order(prepare_job(options));
  EXPECT_EQ(resumed.run.schedule, slow.run.schedule);
  options.recovery.recover = Recover::Reroute;
  const Job recovering = in_chosen_order(prepare_job(options));
  EXPECT_EQ(recovering.run.schedule, launched.run.schedule) << "TrainerHandover takes the order";
  EXPECT_EQ(*recovering.order, slow.run.schedule);
  options.recovery.recover = {};
  run_rank_threads(4, resumed.rank_groups(), [&](RankId rank, Transport& transport) {
    at::set_num_threads(1);
    Trainer trainer(resumed, rank, transport);
    trainer.run([&](const StepMetrics& step) {
      EXPECT_EQ(*step.parameters_hash, expected[static_cast<std::size_t>(step.step - 1)]);
    });
  });
  TrainOptions other = options;
  other.schedule.name = "chimera";
  EXPECT_EQ(in_chosen_order(prepare_job(other)).order, nullptr) << "another schedule";
  other.schedule.name = "chimera-zb";
  other.schedule.shape = {2, 8};
  EXPECT_EQ(in_chosen_order(prepare_job(other)).run.schedule.stages, 2) << "another layout";
  write_whole(scratch.path("run/order.json"), "{");
  EXPECT_THAT([&] { static_cast<void>(in_chosen_order(prepare_job(options))); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--resume: "), HasSubstr("run/order.json"),
                                               HasSubstr("without it, the run goes on with chimera-zb"))));
  save_order(options.checkpoint.folder, {});
  EXPECT_EQ(in_chosen_order(prepare_job(options)).order, nullptr);
}

/// Jobs of all ranks, without `lost`, with copies of its stages on other ranks, without other launched holders of these
/// stages either, with all ranks again, which get their stages from the copies, and without the copies.
std::vector<Job> jobs_with_copies(const TrainOptions& options, RankId lost) {
  const Job whole = prepare_job(options);
  const RunChange copied = balanced(whole, {.lost = {lost}});
  EXPECT_THAT(copied.extra_copies, Not(IsEmpty()));
  if (copied.extra_copies.empty()) return {whole};
  const RunChange back{.lost = {}, .extra_copies = copied.extra_copies};
  EXPECT_EQ(balanced(whole, back), RunChange{});
  RunChange last = copied;
  const RankGroups groups = whole.run.rank_groups();
  for (const RankId holder : groups.at(copied.extra_copies.front().group.index())) {
    RunChange next = last;
    if (holder != lost) next.lost.push_back(holder);
    try {
      static_cast<void>(rerouted_job(whole, next));
      last = next;
    } catch (const ConfigError&) {  // It holds another stage alone
    }
  }
  EXPECT_GT(last.lost.size(), 1U);
  std::vector<Job> jobs = {whole,
                           rerouted_job(whole, {.lost = {lost}}),
                           rerouted_job(whole, copied),
                           rerouted_job(whole, last),
                           rerouted_job(whole, back),
                           whole};
  EXPECT_THAT(extra_copies(jobs[1]), IsEmpty());
  for (std::size_t i = 2; i < 5; ++i)
    EXPECT_THAT(extra_copies(jobs[i]), UnorderedElementsAreArray(copied.extra_copies));
  return jobs;
}

TEST(ReroutedJobTest, CopiesOfStagesReplaceLostHolders) {
  for (const OptimizerKind optimizer : {OptimizerKind::AdamW, OptimizerKind::Muon}) {
    TrainOptions options = rerouted_options("chimera", {4, 8});
    TrainOptions alone = rerouted_options("none", {1, 8});
    options.updates.optimizer.kind = alone.updates.optimizer.kind = optimizer;
    EXPECT_THAT(hashes_of_jobs(jobs_with_copies(options, RankId(2))),
                ElementsAreArray(testing::train(alone, 12).parameters_hashes));
  }
}

TEST(ReroutedJobTest, CopiesReplaceLostHoldersOfSeveralGroupsOrPipelines) {
  TrainOptions groups = rerouted_options("chimera-zb", {4, 8}, 2);
  TrainOptions pipelines = rerouted_options("chimera-zb", {8, 16, 4});
  TrainOptions alone = rerouted_options("none", {1, 16});
  for (TrainOptions* options : {&groups, &pipelines, &alone}) {
    options->model.overrides.layers = 8;
    options->model.overrides.tied = false;
    options->numbers.reduction_blocks = 16;
  }
  const auto expected = testing::train(alone, 12).parameters_hashes;
  EXPECT_THAT(hashes_of_jobs(jobs_with_copies(groups, RankId(1))), ElementsAreArray(expected));
  EXPECT_THAT(hashes_of_jobs(jobs_with_copies(pipelines, RankId(1))), ElementsAreArray(expected));
}

// The state of ranks, without the connections of a GPU
TEST(ReroutedJobTest, CopiesOnADeviceReplaceLostHolders) {
  testing::FakeAccelerator gpus;
  gpus.device_type = testing::kFakeDevice;
  testing::FakeDevice::install();
  testing::FakeDevice::get().clear();
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = rerouted_options("chimera", {4, 8});
  TrainOptions alone = rerouted_options("none", {1, 8});
  for (TrainOptions* each : {&options, &alone}) {
    each->device.kind = DeviceKind::Cuda;
    each->device.transport = TransportKind::Threads;
  }
  EXPECT_THAT(hashes_of_jobs(jobs_with_copies(options, RankId(2))),
              ElementsAreArray(testing::train(alone, 12).parameters_hashes));
}

/// Four GPUs. A communicator takes two multiprocessors; without copies ranks have 7, with copies 8.
struct FourGpus {
  explicit FourGpus(int multiprocessors) { gpus.each.multiprocessors = multiprocessors; }
  static TrainOptions options() {
    TrainOptions options = rerouted_options("chimera", {4, 8});
    options.device.kind = DeviceKind::Cuda;
    options.device.transport = TransportKind::Processes;
    options.recovery.recover = Recover::Reroute;
    options.model.overrides.tied = false;
    return options;
  }
  testing::FakeAccelerator gpus;
  testing::ScopedAcceleratorOverride instead{gpus};
};

TEST(ReroutedJobTest, RanksKeepTheirGpus) {
  const FourGpus gpus(100);
  const Job rest = rerouted_job(prepare_job(FourGpus::options()), {.lost = {RankId(1)}});
  const auto transport = make_pair_transport({});
  EXPECT_EQ(RankContext(rest, RankId(1), *transport).device, at::Device(at::kCUDA, 2));
}

TEST(ReroutedJobTest, NoCopyIsMadeThatAGpuDoesNotHold) {
  const auto copied = [](int multiprocessors, std::int64_t memory_bytes) {
    FourGpus gpus(multiprocessors);
    gpus.gpus.each.memory_bytes = memory_bytes;
    return balanced(prepare_job(FourGpus::options()), {.lost = {RankId(1)}}).extra_copies;
  };
  constexpr std::int64_t kMuch = std::int64_t{80} << 30;
  EXPECT_THAT(copied(16, kMuch), Not(IsEmpty()));
  EXPECT_THAT(copied(14, kMuch), IsEmpty());
  // A rank has 917 KiB of tensors, and a copy needs 102 KiB.
  const double little = (reserved_on_gpu(0).all() + 1000 * 1024) / (1 - reserved_on_gpu(1).margin);
  EXPECT_THAT(copied(16, static_cast<std::int64_t>(little)), IsEmpty());
}

TEST(ReroutedJobTest, EachLostRankMustLeaveFewCommunicators) {
  TrainOptions options = FourGpus::options();
  options.schedule.shape.stages = 8;
  options.model.overrides.layers = 8;
  options.recovery.spare_seconds = 5;
  const auto patience = [&](int multiprocessors, Recover recover) {
    FourGpus gpus(multiprocessors);
    gpus.gpus.devices = 8;
    options.recovery.recover = recover;
    return spare_patience(prepare_job(options));
  };
  // Without rank 0 they need as few as with it. Without rank 1 its twin exchanges messages with 4 others.
  EXPECT_EQ(patience(22, Recover::Reroute), std::chrono::milliseconds(0));
  EXPECT_EQ(patience(22, Recover::Twin), std::chrono::milliseconds(5000));
  EXPECT_THAT([&] { static_cast<void>(patience(20, Recover::Reroute)); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("--recover reroute: without rank 1, "), HasSubstr("11 communicators"))));
  EXPECT_EQ(patience(20, Recover::Twin), std::nullopt);
}

TEST(ReroutedJobTest, CopiesNeedMemoryAndNoTiedMatrix) {
  TrainOptions options = rerouted_options("chimera", {4, 8});
  const auto copies = [&](std::int64_t lost) {
    return balanced(prepare_job(options), {.lost = {RankId(lost)}}).extra_copies;
  };
  options.model.overrides.tied = true;
  EXPECT_THAT(copies(0), IsEmpty());
  EXPECT_THAT(copies(1), SizeIs(2));
  options.model.overrides.tied = false;
  EXPECT_THAT(copies(0), SizeIs(2));
  options.memory.gib = 1e-6;
  options.memory.ignores = true;  // The job starts, and copies still keep the limit
  EXPECT_THAT(copies(0), IsEmpty());
}

TEST(ReroutedJobTest, AStageWithoutAHolderIsRejected) {
  const Job job = prepare_job(rerouted_options("chimera", {4, 8}));
  EXPECT_THAT(
      [&] {
        static_cast<void>(rerouted_job(job, {.lost = {RankId(1), RankId(2)}}));
      },
      ThrowsMessage<ConfigError>(HasSubstr("no worker is left that holds stages 1, 2")));
}

TEST(StepCostsTest, EachChangeOfTheRanksHasALine) {
  StepCosts costs(4);
  EXPECT_EQ(costs.describe(), "");
  costs.begin({}, 1, 0);
  for (std::int64_t step = 1; step <= 3; ++step) costs.note_step(step, 0.5);
  EXPECT_EQ(costs.describe(), "");
  costs.begin({.lost = {RankId(2)}}, 4, 0.25);
  costs.note_step(3, 9);  // closed again
  costs.note_step(4, 1);
  costs.begin({.lost = {RankId(2)}}, 5, 0.1);  // connections lost, no rank
  costs.begin({.lost = {RankId(0), RankId(2)}}, 5, 0.5);
  costs.begin({.lost = {RankId(2)}}, 5, 2);
  costs.begin({.lost = {RankId(2)}, .extra_copies = {{RankId(3), ParameterGroupId(1)}}}, 5, 0.25);
  costs.begin({.factors = {1, 2, 1, 1}}, 6, 0.25, "rank 1 takes 2.0 times as long");
  costs.begin({.factors = {1, 2, 1, 1}, .delays = {{RankId(0), RankId(1), 0.1}}}, 7, 0.25);
  EXPECT_EQ(
      costs.describe(),
      "rank 2 lost in step 4: 0.25 s until the step ran again, then 1.0000 s a step on 3 of 4 workers, 2.00 times "
      "the 0.5000 s before the first loss\n"
      "rank 0 lost in step 5: 0.50 s until the step ran again\n"
      "rank 0 back in step 5: 2.00 s until the step ran again\n"
      "copied stage 1 to rank 3 in step 5: 0.25 s until the step ran\n"
      "rank 2 back, order changed (rank 1 takes 2.0 times as long) in step 6: 0.25 s until the step ran again\n"
      "order changed in step 7: 0.25 s until the step ran\n");
}

}  // namespace
}  // namespace chimera
