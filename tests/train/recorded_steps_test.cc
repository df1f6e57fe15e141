// --cuda-graphs on a fake device (support/fake_device.h), over communicators as strict as NCCL's: recorded and replayed
// steps train like others.

#include "runtime/recorded_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "core/error.h"
#include "support/fake_accelerator.h"
#include "support/fake_device.h"
#include "support/fake_network.h"
#include "support/training.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using ::testing::DoubleNear;
using testing::FakeDevice;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Pointwise;

const at::Device kDevice(testing::kFakeDevice, 0);
constexpr std::int64_t kSteps = 6;  // two ordinary steps, one recorded, three replayed

class RecordedStepsTest : public ::testing::Test {
 protected:
  RecordedStepsTest() {
    gpus_.device_type = testing::kFakeDevice;
    gpus_.records = [this](const auto& work) {
      ++recordings_;
      return FakeDevice::get().record(work);
    };
    FakeDevice::install();
    FakeDevice::get().clear();
  }

  struct Outcome {
    std::vector<double> losses;
    std::vector<double> gradient_norms;
    std::vector<std::int64_t> given;  // kernels and copies of all ranks, by step
    std::string error;
  };

  /// Ranks are threads, each on its own stream, connected only by process groups.
  Outcome train(const TrainOptions& options) const {
    const Job job = prepare_job(options);
    const auto ranks = static_cast<int>(job.num_ranks());
    testing::FakeNetwork network(ranks, job.rank_groups(), talking_pairs(job));
    Outcome outcome;
    const auto run = [&](RankId rank) {
      at::set_num_threads(1);
      Communicators to = network.communicators(static_cast<int>(rank.value()), job.canonical.has_value());
      to.device = kDevice;
      const OwnStream stream(kDevice);
      const auto transport = make_pair_transport(std::move(to));
      Trainer trainer(job, rank, *transport);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        const std::int64_t before = FakeDevice::get().given_count();
        const StepMetrics metrics = trainer.train_step(step);
        if (rank != RankId(0)) continue;
        outcome.losses.push_back(metrics.loss);
        outcome.gradient_norms.push_back(metrics.gradient_norm);
        outcome.given.push_back(FakeDevice::get().given_count() - before);
      }
    };
    const auto failed = RankThreads(ranks).run(ranks, run, [&](const std::string& why) { network.close(why); });
    outcome.error = failed ? what_of(failed->error) : network.why_closed();
    return outcome;
  }

  static std::string what_of(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      return exception.what();
    }
  }

  testing::FakeAccelerator gpus_;
  ScopedAcceleratorOverride instead_{gpus_};
  std::atomic<int> recordings_ = 0;
};

TrainOptions options_of(const std::string& model, const std::string& schedule) {
  TrainOptions options = testing::small_options(model, schedule, {4, 4});
  options.device = DeviceKind::Cuda;
  options.transport = TransportKind::Processes;
  options.gpu = 0;
  options.clip = 0.5;  // less than the norm
  return options;
}

TrainOptions recorded(TrainOptions options) {
  options.cuda_graphs = true;
  return options;
}

TEST_F(RecordedStepsTest, EveryKindOfScheduleTrainsAsWithoutRecording) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny"}) {
    for (const std::string schedule : {"none", "1f1b", "chimera", "zb-h1"}) {
      SCOPED_TRACE(model + " " + schedule);
      const TrainOptions options = options_of(model, schedule);
      const Outcome as_it_is = train(options);
      ASSERT_EQ(as_it_is.error, "");
      recordings_ = 0;
      const Outcome outcome = train(recorded(options));
      ASSERT_EQ(outcome.error, "");
      EXPECT_THAT(outcome.losses, Pointwise(DoubleNear(1e-12), as_it_is.losses));
      EXPECT_THAT(outcome.gradient_norms, Pointwise(DoubleNear(1e-12), as_it_is.gradient_norms));
      EXPECT_EQ(recordings_, schedule == "none" ? 1 : 4) << "each rank's, once";
    }
  }
}

TEST_F(RecordedStepsTest, OtherWaysOfComputingTrainAsWithoutRecording) {
  std::map<std::string, TrainOptions> ways;
  ways["recomputation"] = options_of("gpt2-tiny", "chimera");
  ways["recomputation"].recompute.rule = RecomputeRule::Full;
  ways["copies"] = options_of("gpt2-tiny", "1f1b");
  ways["copies"].shape = {2, 4};
  ways["copies"].data_parallel = 2;
  ways["canonical sums"] = ways["copies"];
  ways["canonical sums"].reduction = ReductionOrder::Canonical;
  ways["bfloat16"] = options_of("llama-tiny", "1f1b");
  ways["bfloat16"].dtype = DataType::BFloat16;
  for (const auto& [name, options] : ways) {
    SCOPED_TRACE(name);
    const Outcome as_it_is = train(options);
    ASSERT_EQ(as_it_is.error, "");
    const Outcome outcome = train(recorded(options));
    ASSERT_EQ(outcome.error, "");
    EXPECT_THAT(outcome.losses, Pointwise(DoubleNear(1e-12), as_it_is.losses));
  }
}

TEST_F(RecordedStepsTest, HostIssuesLittleWorkForReplays) {
  const Outcome outcome = train(recorded(options_of("gpt2-tiny", "none")));
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.given.back() * 4, Lt(outcome.given[1]));
}

/// Includes the recorded step, in which CUDA allows no wait.
TEST_F(RecordedStepsTest, TheHostWaitsOnceAStep) {
  FakeDevice::get().answer_late();
  ASSERT_EQ(train(recorded(options_of("gpt2-tiny", "none"))).error, "");
  const auto with = static_cast<std::int64_t>(FakeDevice::get().waits().size());
  FakeDevice::get().clear();
  FakeDevice::get().answer_late();
  ASSERT_EQ(train(options_of("gpt2-tiny", "none")).error, "");
  EXPECT_EQ(with, static_cast<std::int64_t>(FakeDevice::get().waits().size()));
}

/// Work that each replay runs again from the start, without a device.
class DoneAgain final : public RecordedWork {
 public:
  explicit DoneAgain(std::function<void()> work) : work_(std::move(work)) {}
  void repeat() override { work_(); }

 private:
  std::function<void()> work_;
};

TEST(RecordedPartTest, IsRecordedAgainOnlyForOtherMicroBatchSizes) {
  const std::vector<Instruction> part = {{.op = {.micro_batch = MicroBatchId(0)}}};
  RecordedSteps steps;
  double sum = 0;
  RecordedSteps::Losses losses;
  const auto step = [&](at::Tensor tokens) {
    steps.run(
        part, [&](StageId, MicroBatchId) { return MicroBatch{.tokens = std::move(tokens)}; },
        [](const std::function<void()>& work) { return std::make_unique<DoneAgain>(work); },
        [&](auto, const RecordedSteps::Load& load) {
          sum = load(StageId(0), MicroBatchId(0)).tokens.sum().item<double>();
        },
        losses);
    return sum;
  };
  EXPECT_EQ(step(at::full({2, 3}, 1)), 6);
  EXPECT_EQ(step(at::full({2, 3}, 2)), 12) << "its own samples";
  EXPECT_EQ(steps.recordings(), 1);
  EXPECT_EQ(step(at::full({2, 4}, 2)), 16);
  EXPECT_EQ(steps.recordings(), 2);
}

TEST(RecordedPartTest, FirstStepsAreNotRecorded) {
  RecordedSteps steps;
  for (int i = 0; i < RecordedSteps::kStepsBefore; ++i) EXPECT_TRUE(steps.is_before());
  EXPECT_FALSE(steps.is_before());
}

TEST(RecordableTest, UnrecordableRunsAreRejectedInOneLine) {
  const auto refusal_of = [](const TrainOptions& options, std::int64_t ranks) -> std::string {
    try {
      require_recordable(options, ranks);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  TrainOptions options;
  options.cuda_graphs = true;
  EXPECT_THAT(refusal_of(options, 1), HasSubstr("use --device cuda"));
  options.device = DeviceKind::Cuda;
  EXPECT_EQ(refusal_of(options, 4), "");
  options.dropout = 0.1;
  EXPECT_THAT(refusal_of(options, 4), HasSubstr("use --dropout 0"));
  options.dropout = 0;
  options.transport = TransportKind::Threads;
  EXPECT_THAT(refusal_of(options, 4), HasSubstr("use --transport processes"));
  EXPECT_EQ(refusal_of(options, 1), "");
}

}  // namespace
}  // namespace chimera
