// --cuda-graphs on a fake device (support/fake_device.h), over communicators as strict as NCCL's: recorded and replayed
// steps train like others.

#include "runtime/recordings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <stdexcept>

#include "engine/programs.h"
#include "engine/run_shape.h"
#include "model/make_stage.h"
#include "runtime/executor.h"
#include "support/fake_gpus.h"
#include "support/fake_network.h"
#include "support/message_of.h"
#include "support/training.h"
#include "train/loop/loader.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using ::testing::DoubleNear;
using testing::FakeDevice;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Pointwise;

const at::Device kRecordedDevice(testing::kFakeDevice, 0);
constexpr std::int64_t kRecordedSteps = 6;  // two ordinary steps, one recorded, three replayed

class RecordedStepsTest : public testing::FakeGpuTest {
 protected:
  RecordedStepsTest() {
    gpus_.records = [this](const auto& work, const DeviceGraph* shared, const auto& generators) {
      ++recordings_;
      if (shared == nullptr) ++pools_;
      EXPECT_GE(releases_, pools_) << "the cache is released before each pool";
      return FakeDevice::get().record(work, generators);
    };
    gpus_.releases = [this] { ++releases_; };
  }

  struct Outcome {
    std::vector<double> losses;
    std::vector<double> gradient_norms;
    std::vector<std::int64_t> given;  // kernels and copies of all ranks, by step
    std::string error;
  };

  Outcome train(const TrainOptions& options) const {
    const Job job = prepare_job(options);
    Outcome outcome;
    outcome.error = run_ranks(job, [&](RankId rank, Transport& transport) {
      Trainer trainer(job, rank, transport);
      for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
        const std::int64_t before = FakeDevice::get().given_count();
        const StepMetrics metrics = trainer.train_step(step);
        if (rank != RankId(0)) continue;
        outcome.losses.push_back(metrics.loss);
        outcome.gradient_norms.push_back(metrics.gradient_norm);
        outcome.given.push_back(FakeDevice::get().given_count() - before);
      }
    });
    return outcome;
  }

  /// Computes the same weights' losses and gradients in each step. Group 1 has padding, and so a mask, in step 3.
  Outcome train_padded(const TrainOptions& options) const {
    const Job job = prepare_job(options);
    Outcome outcome;
    outcome.error = run_ranks(job, [&](RankId rank, Transport& transport) {
      const GroupWorker place = job.run.ranks.place(rank);
      const auto stages = make_stages_of_worker(job.run, place.worker, [&](StageId id) {
        return make_stage(job.model, job.partition[id.index()], at::kDouble, initial_values_of(1), {}, kRecordedDevice);
      });
      const TensorSpec message{{job.run.samples_per_op(), options.data.sequence, job.model.hidden}, at::kDouble};
      Executor executor(place.worker, borrow<Stage>(stages), transport, message, program_shape(job.run, place.group));
      const auto batch = [&](std::int64_t of) {
        return [&, of](StageId, MicroBatchId id) { return padded_batch(job, place.group, of, id); };
      };
      const auto& program = job.programs.training.workers[place.worker.index()];
      if (options.numbers.op_graphs) executor.record_ops(program, batch(0), graph_capture_on(gpus_));
      for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
        const StepHooks hooks{
            .load = batch(step),
            .update = {.all_stages = [](double) {}},
            .recording = {.record = options.numbers.cuda_graphs ? graph_capture_on(gpus_) : CaptureGraph(),
                          .load_next = batch(step + 1)},
        };
        const StepResult result = executor.run(program, hooks);
        if (rank != RankId(0)) continue;
        outcome.losses.insert(outcome.losses.end(), result.losses.begin(), result.losses.end());
        outcome.gradient_norms.push_back(result.gradient_norm);
      }
    });
    return outcome;
  }

  /// Trains twice and expects equal losses and norms. The results remain in `plain_` and `changed_`.
  void expect_same(const TrainOptions& plain, const TrainOptions& changed, bool is_padded = false) {
    const auto run = [&](const TrainOptions& options) { return is_padded ? train_padded(options) : train(options); };
    plain_ = run(plain);
    ASSERT_EQ(plain_.error, "");
    recordings_ = releases_ = pools_ = 0;
    changed_ = run(changed);
    ASSERT_EQ(changed_.error, "");
    EXPECT_EQ(releases_, pools_);
    EXPECT_THAT(changed_.losses, Pointwise(DoubleNear(1e-12), plain_.losses));
    EXPECT_THAT(changed_.gradient_norms, Pointwise(DoubleNear(1e-12), plain_.gradient_norms));
  }

  static MicroBatch padded_batch(const Job& job, GroupId group, std::int64_t step, MicroBatchId id) {
    MicroBatch batch =
        make_micro_batch(*job.data.training, job.model.family,
                         {step, job.run.first_sample(group, id), job.run.samples_per_op(), job.run.mini_batch()});
    if (group == GroupId(1) && step == 3) {
      batch.attention_mask = at::ones(batch.tokens.sizes(), at::kBool);
      batch.attention_mask.narrow(1, batch.tokens.size(1) - 2, 2).zero_();
    }
    return on_device(pin_memory(std::move(batch), kRecordedDevice), kRecordedDevice);
  }

  /// Ranks are threads, each on its own stream, connected only by process groups. Returns the error.
  std::string run_ranks(const Job& job, const std::function<void(RankId, Transport&)>& run) const {
    const auto ranks = static_cast<int>(job.run.num_ranks());
    testing::FakeNetwork network(ranks, job.run.rank_groups(), communicating_pairs(job, job.options));
    network.records = [this](const at::Tensor& message) {
      if (FakeDevice::get().recording() == nullptr) return;
      ++recorded_messages_;
      if (FakeDevice::has_allocated(message)) ++kept_messages_;
    };
    const auto run_rank = [&](RankId rank) {
      at::set_num_threads(1);
      Communicators to = network.communicators(static_cast<int>(rank.value()), job.canonical.has_value());
      to.device = kRecordedDevice;
      const PooledStreamGuard stream(kRecordedDevice);
      run(rank, *make_pair_transport(std::move(to)));
    };
    const auto failed = RankThreads(ranks).run(ranks, run_rank, [&](const std::string& why) { network.close(why); });
    return failed ? what_of(failed->error) : network.why_closed();
  }

  Outcome plain_, changed_;
  std::atomic<int> recordings_ = 0;
  std::atomic<int> releases_ = 0;
  std::atomic<int> pools_ = 0;
  mutable std::atomic<int> recorded_messages_ = 0;  // in recordings, without repetitions
  mutable std::atomic<int> kept_messages_ = 0;      // with memory that recordStream() would keep
};

TrainOptions recorded_steps_options(const std::string& model, const std::string& schedule) {
  TrainOptions options = testing::small_options(model, schedule, {4, 4});
  options.device.kind = DeviceKind::Cuda;
  options.device.transport = TransportKind::Processes;
  options.device.gpu = 0;
  options.updates.clip = 0.5;  // less than the norm
  return options;
}

TrainOptions with_op_graphs(TrainOptions options) {
  options.numbers.op_graphs = true;
  return options;
}

TrainOptions recorded(TrainOptions options) {
  options.numbers.cuda_graphs = true;
  return options;
}

TEST_F(RecordedStepsTest, EveryKindOfScheduleTrainsAsWithoutRecording) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny"}) {
    for (const std::string schedule : {"none", "1f1b", "chimera", "zb-h1"}) {
      SCOPED_TRACE(model + " " + schedule);
      const TrainOptions options = recorded_steps_options(model, schedule);
      expect_same(options, recorded(options));
      EXPECT_EQ(recordings_, schedule == "none" ? 1 : 4) << "each rank's, once";
    }
  }
}

std::map<std::string, TrainOptions> ways_of_computing() {
  std::map<std::string, TrainOptions> ways;
  ways["recomputation"] = recorded_steps_options("gpt2-tiny", "chimera");
  ways["recomputation"].memory.recompute.rule = StageRule::Full;
  ways["recomputed attention"] = recorded_steps_options("llama-tiny", "zb-h1");
  ways["recomputed attention"].memory.recompute.rule = StageRule::Attention;
  ways["recomputed blocks"] = recorded_steps_options("bert-tiny", "chimera");
  ways["recomputed blocks"].memory.recompute = parse_stages(kRecomputeFlag, "cheap:1+full:1");
  ways["copies"] = recorded_steps_options("gpt2-tiny", "1f1b");
  ways["copies"].schedule.shape = {2, 4};
  ways["copies"].parallel.data_parallel = 2;
  ways["bfloat16"] = recorded_steps_options("llama-tiny", "1f1b");
  ways["bfloat16"].numbers.dtype = DataType::BFloat16;
  return ways;
}

TEST_F(RecordedStepsTest, OtherWaysOfComputingTrainAsWithoutRecording) {
  auto ways = ways_of_computing();
  ways["sharded optimizer"] = ways["copies"];
  ways["sharded optimizer"].memory.shard_optimizer = true;
  ways["canonical sums"] = ways["copies"];
  ways["canonical sums"].numbers.reduction = ReductionOrder::Canonical;
  for (const auto& [name, options] : ways) {
    SCOPED_TRACE(name);
    expect_same(options, recorded(options));
  }
}

/// One graph for each kind of op and place in flight; one pool for each kind.
TEST_F(RecordedStepsTest, RecordedOpsTrainAsWithoutRecording) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny"}) {
    for (const auto& [schedule, kinds] :
         {std::pair("none", 2), std::pair("1f1b", 2), std::pair("chimera", 2), std::pair("zb-h1", 3)}) {
      SCOPED_TRACE(model + " " + schedule);
      const TrainOptions options = recorded_steps_options(model, schedule);
      expect_same(options, with_op_graphs(options));
      const int ranks = schedule == std::string("none") ? 1 : 4;
      EXPECT_EQ(pools_, kinds * ranks);
      EXPECT_GE(recordings_, kinds * ranks);
      EXPECT_EQ(recordings_ % kinds, 0);
    }
  }
}

TEST_F(RecordedStepsTest, RecordedOpsDoNotGrowWithMicroBatches) {
  std::vector<int> counts;
  for (const std::int64_t micro_batches : {4, 8, 16}) {
    TrainOptions options = recorded_steps_options("gpt2-tiny", "1f1b");
    options.schedule.shape = {4, micro_batches};
    recordings_ = releases_ = pools_ = 0;
    ASSERT_EQ(train(with_op_graphs(options)).error, "");
    counts.push_back(recordings_);
  }
  EXPECT_THAT(counts, ::testing::Each(2 * (4 + 3 + 2 + 1)));
}

TEST_F(RecordedStepsTest, HostLaunchesAFewGraphsPerRecordedOp) {
  for (const std::string schedule : {"none", "1f1b"}) {
    const Outcome as_it_is = train(recorded_steps_options("gpt2-tiny", schedule));
    const Outcome outcome = train(with_op_graphs(recorded_steps_options("gpt2-tiny", schedule)));
    ASSERT_EQ(outcome.error, "");
    EXPECT_THAT(outcome.given.back() * 3, Lt(as_it_is.given.back())) << schedule;
  }
}

/// Ops of micro-batches of other sizes run without a graph. No other rank needs to know.
TEST_F(RecordedStepsTest, MicroBatchesOfOtherSizesRunWithoutTheirGraphs) {
  TrainOptions options = recorded_steps_options("bert-tiny", "1f1b");
  options.schedule.shape = {2, 4};
  options.parallel.data_parallel = 2;
  expect_same(options, with_op_graphs(options), /*is_padded=*/true);
}

TEST_F(RecordedStepsTest, OtherWaysOfComputingTrainAsWithoutRecordedOps) {
  for (const auto& [name, options] : ways_of_computing()) {
    SCOPED_TRACE(name);
    expect_same(options, with_op_graphs(options));
  }
}

/// Each repetition draws the masks of its own step and micro-batch, in forward and backward.
TEST_F(RecordedStepsTest, DropoutOfRecordedOpsHasTheMasksOfRunsWithoutGraphs) {
  for (const auto& [model, schedule] :
       {std::pair("gpt2-tiny", "1f1b"), std::pair("bert-tiny", "chimera"), std::pair("llama-tiny", "zb-h1")}) {
    for (const StageRule recomputed : {StageRule::None, StageRule::Attention, StageRule::Cheap}) {
      SCOPED_TRACE(std::string(model) + ", recomputed: " + std::string(to_text(recomputed)));
      TrainOptions options = recorded_steps_options(model, schedule);
      options.model.dropout = 0.1;
      options.memory.recompute.rule = recomputed;
      expect_same(options, with_op_graphs(options));
      EXPECT_GT(recordings_, 0);
      ASSERT_FALSE(HasFatalFailure());
      EXPECT_LT(changed_.given.back(), plain_.given.back());
    }
  }
}

/// NCCL requires that all members of a communicator capture an operation, and repeat it from that capture.
TEST_F(RecordedStepsTest, AllRanksRecordAgainIfOneGroupHasOtherSizes) {
  TrainOptions options = recorded_steps_options("bert-tiny", "1f1b");
  options.schedule.shape = {2, 4};
  options.parallel.data_parallel = 2;
  expect_same(options, recorded(options), /*is_padded=*/true);
  EXPECT_EQ(recordings_, 4 * 3) << "each rank's: first, with padding, and without";
}

/// During a capture CUDA's allocator does not reuse memory after recordStream(), which c10d calls for each message.
/// Then the memory of a recorded step would grow with its messages.
TEST_F(RecordedStepsTest, MessagesOfARecordedStepKeepNoMemory) {
  ASSERT_EQ(train(recorded(recorded_steps_options("gpt2-tiny", "1f1b"))).error, "");
  EXPECT_EQ(recorded_messages_, 2 * 2 * 3 * 4) << "both ends; activations and gradients; 3 boundaries, 4 micro-batches";
  EXPECT_EQ(kept_messages_, 0);
}

TEST_F(RecordedStepsTest, HostIssuesLittleWorkForReplays) {
  const Outcome outcome = train(recorded(recorded_steps_options("gpt2-tiny", "none")));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.given.back() * 4, Lt(outcome.given[1]));
}

/// Includes the recorded step, in which CUDA allows no wait.
TEST_F(RecordedStepsTest, TheHostWaitsOnceAStep) {
  FakeDevice::get().answer_late();
  ASSERT_EQ(train(recorded(recorded_steps_options("gpt2-tiny", "none"))).error, "");
  const auto with = static_cast<std::int64_t>(FakeDevice::get().waits().size());
  FakeDevice::get().clear();
  FakeDevice::get().answer_late();
  ASSERT_EQ(train(recorded_steps_options("gpt2-tiny", "none")).error, "");
  EXPECT_EQ(with, static_cast<std::int64_t>(FakeDevice::get().waits().size()));
}

/// Work that each replay runs again from the start, without a device.
class DoneAgain final : public DeviceGraph {
 public:
  explicit DoneAgain(std::function<void()> work) : work_(std::move(work)) {}
  void repeat() override { work_(); }

 private:
  std::function<void()> work_;
};

/// A part with one forward, whose result is the sum of its tokens.
struct RecordedPartTest : ::testing::Test {
  static LoadMicroBatch loads(const at::Tensor& tokens) {
    return [tokens](StageId, MicroBatchId) { return MicroBatch{.tokens = tokens}; };
  }
  double run(const LoadMicroBatch& load) {
    StepLosses losses;
    const auto record = [this](const auto& work, const DeviceGraph* /*shared*/, const auto& /*generators*/) {
      ++recordings;
      return std::make_unique<DoneAgain>(work);
    };
    const auto sum_tokens = [this](auto, const LoadMicroBatch& recorded) {
      sum = recorded(StageId(0), MicroBatchId(0)).tokens.sum().item<double>();
    };
    steps.run(part, load, record, sum_tokens, losses);
    return sum;
  }

  std::vector<Instruction> part = {{.op = {.micro_batch = MicroBatchId(0)}}};
  RecordedSteps steps;
  double sum = 0;
  int recordings = 0;
};

TEST_F(RecordedPartTest, StepsOfOneSizeRepeatTheRecording) {
  EXPECT_EQ(run(loads(at::full({2, 3}, 1))), 6);
  EXPECT_EQ(run(loads(at::full({2, 3}, 2))), 12) << "its own samples";
  steps.load_next(part, loads(at::full({2, 3}, 3)));
  EXPECT_FALSE(steps.needs_recording());
  EXPECT_EQ(run({}), 18) << "the samples loaded before";
  EXPECT_EQ(recordings, 1);
}

TEST_F(RecordedPartTest, OtherSizesNeedANewRecording) {
  EXPECT_EQ(run(loads(at::full({2, 3}, 1))), 6);
  steps.load_next(part, loads(at::full({2, 4}, 2)));
  EXPECT_TRUE(steps.needs_recording());
  steps.record_again();
  EXPECT_EQ(run({}), 16);
  EXPECT_EQ(recordings, 2);
}

TEST_F(RecordedPartTest, NoRankRecordsAlone) {
  EXPECT_EQ(run(loads(at::full({2, 3}, 1))), 6);
  EXPECT_THROW(run(loads(at::full({2, 4}, 2))), std::logic_error);
}

TEST_F(RecordedPartTest, FirstStepsAreNotRecorded) {
  for (int i = 0; i < RecordedSteps::kStepsBefore; ++i) EXPECT_TRUE(steps.is_before());
  EXPECT_FALSE(steps.is_before());
}

TEST(RecordableTest, UnrecordableRunsAreRejectedInOneLine) {
  const auto refusal_of = [](TrainOptions options, std::int64_t ranks) -> std::string {
    options.schedule.name = "1f1b";
    options.schedule.shape = {.stages = ranks, .micro_batches = 4};
    return testing::message_of([&] { static_cast<void>(resolve_job(options)); });
  };
  TrainOptions options;
  options.numbers.cuda_graphs = true;
  EXPECT_THAT(refusal_of(options, 1), HasSubstr("use --device cuda"));
  options.device.kind = DeviceKind::Cuda;
  EXPECT_EQ(refusal_of(options, 4), "");
  options.model.dropout = 0.1;
  EXPECT_THAT(refusal_of(options, 4), HasSubstr("use --dropout 0"));
  options.model.dropout = 0;
  options.memory.offload = {StageRule::Full};
  EXPECT_THAT(refusal_of(options, 4), HasSubstr("use --offload none"));
  options.memory.offload = {};
  options.device.transport = TransportKind::Threads;
  EXPECT_THAT(refusal_of(options, 4), HasSubstr("use --transport processes"));
  EXPECT_EQ(refusal_of(options, 1), "");
  options.numbers.op_graphs = true;
  EXPECT_THAT(refusal_of(options, 1), HasSubstr("leave out one of them"));
  options.numbers.cuda_graphs = false;
  options.model.dropout = 0.1;
  EXPECT_EQ(refusal_of(options, 1), "") << "each repetition draws its own masks";
  options.numbers.reduction = ReductionOrder::Canonical;
  EXPECT_THAT(refusal_of(options, 1), HasSubstr("--op-graphs: gradients of blocks"));
}

}  // namespace
}  // namespace chimera
