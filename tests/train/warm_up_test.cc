// The first use of an op on a GPU may wait until the whole GPU is idle. Here every first use does, on fake devices
// (support/fake_device.h), and the network (support/fake_network.h) fails if a transfer is pending then.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <torch/nn.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/fit.h"
#include "engine/programs.h"
#include "generate/registry.h"
#include "passes/lower.h"
#include "runtime/executor.h"
#include "runtime/memory_meter.h"
#include "support/fake_gpus.h"
#include "support/fake_network.h"
#include "support/training.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using ::testing::DoubleNear;
using testing::FakeDevice;
using ::testing::HasSubstr;
using ::testing::Pointwise;

const at::Device kWarmDevice(testing::kFakeDevice, 0);

class WarmUpTest : public testing::FakeGpuTest {
 protected:
  ~WarmUpTest() override { FakeDevice::get().clear(); }

  using Body = std::function<void(RankId rank, Transport& transport)>;
  /// Runs `body` on a thread and a stream of a device for each rank, with tensor parallelism on a device of its own.
  /// Returns the reason of a failure, or "". Stores the bytes that NCCL would send in reductions and reduce-scatters in
  /// `reduced`.
  static std::string on_devices(std::int64_t num_ranks, const RankGroups& groups, const std::vector<RankPair>& pairs,
                                bool sums_in_order, const Body& body, std::int64_t* reduced = nullptr,
                                bool has_own = false) {
    const auto ranks = static_cast<int>(num_ranks);
    testing::FakeNetwork network(ranks, groups, pairs);
    FakeDevice::get().wait_at_first_uses(
        [&](c10::StreamId stream, const std::string& use) { network.device_waits(stream, "the first use of " + use); });
    const auto as_rank = [&](RankId rank) {
      ::pthread_setname_np(::pthread_self(), fmt::format("rank {}", rank.value()).c_str());  // For pinned memory
      at::set_num_threads(1);
      Communicators to = network.communicators(static_cast<int>(rank.value()), sums_in_order);
      to.device = has_own ? at::Device(testing::kFakeDevice, static_cast<c10::DeviceIndex>(rank.value())) : kWarmDevice;
      const PooledStreamGuard stream(to.device);
      body(rank, *make_pair_transport(std::move(to)));
    };
    const auto failed = RankThreads(ranks).run(ranks, as_rank, [&](const std::string& why) { network.close(why); });
    FakeDevice::get().wait_at_first_uses({});
    using Kind = testing::FakeNetwork::Kind;
    if (reduced != nullptr) *reduced = network.sent_bytes(Kind::Reduce) + network.sent_bytes(Kind::ReduceScatter);
    if (!network.why_closed().empty()) return network.why_closed();
    return failed ? what_of(failed->error) : "";
  }
};

/// y = w x; the last stage returns the sum of y as its loss.
class Scale final : public Stage {
 public:
  explicit Scale(bool is_last)
      : Stage({{"weight", at::full({1}, 2, at::device(kWarmDevice).dtype(at::kDouble))}}), is_last_(is_last) {}
  at::Tensor forward(const at::Tensor& input, const MicroBatch& batch) override {
    const at::Tensor y = (input.defined() ? input : batch.tokens) * parameters()[0].value;
    return is_last_ ? y.sum() : y;
  }

 private:
  bool is_last_;
};

TEST_F(WarmUpTest, FirstUsesDeadlockWithReceivesUnlessEveryRankWarmsUp) {
  const RunShape run = run_shape({.schedule = {"1f1b", {2, 2}, nullptr}, .data_parallel = 1, .micro_batch_size = 1});
  const Program program = lower(run.schedule);
  const auto first_step = [&](bool warms_up) {
    return on_devices(run.num_ranks(), run.rank_groups(), {{0, 1}}, false, [&](RankId rank, Transport& transport) {
      Scale stage(rank == RankId(1));
      Executor executor(WorkerId(rank.value()), {{StageId(rank.value()), &stage}}, transport, {{2}, at::kDouble},
                        program_shape(run, GroupId(0)));
      const StepHooks hooks{
          .load = [](StageId, MicroBatchId) { return MicroBatch{.tokens = at::ones({2}, kWarmDevice)}; },
          .update = {.all_stages = [](double) {}}};
      const auto& instructions = program.workers[rank.index()];
      if (warms_up) executor.warm_up(instructions, hooks);
      static_cast<void>(executor.run(instructions, hooks));
    });
  };
  EXPECT_THAT(first_step(false), HasSubstr("waits for its device while a transfer is pending"));
  EXPECT_EQ(first_step(true), "");
}

constexpr std::int64_t kWarmSteps = 3;

TrainOptions warm_up_options(const std::string& model, const std::string& schedule) {
  TrainOptions options = testing::small_options(model, schedule, {4, 4});
  options.updates.clip = 0.5;  // less than the norm
  options.data.validate_every = 1;
  return options;
}

std::map<std::string, TrainOptions> all_options() {
  std::map<std::string, TrainOptions> all;
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    for (const std::string schedule : {"1f1b", "chimera", "zb-h1"})
      all[model + " " + schedule] = warm_up_options(model, schedule);
  }
  all["recomputation"] = warm_up_options("gpt2-tiny", "chimera");
  all["recomputation"].memory.recompute.rule = StageRule::Full;
  all["recomputed attention"] = warm_up_options("llama-tiny", "zb-h1");
  all["recomputed attention"].memory.recompute.rule = StageRule::Attention;
  all["dropout"] = warm_up_options("bert-tiny", "chimera");
  all["dropout"].model.dropout = 0.1;
  all["copies"] = warm_up_options("gpt2-tiny", "1f1b");
  all["copies"].schedule.shape = {2, 4};
  all["copies"].parallel.data_parallel = 2;
  all["sharded optimizer"] = all["copies"];
  all["sharded optimizer"].memory.shard_optimizer = true;
  all["canonical sums"] = warm_up_options("gpt2-tiny", "chimera");
  all["canonical sums"].numbers.reduction = ReductionOrder::Canonical;
  all["sharded canonical sums"] = all["canonical sums"];
  all["sharded canonical sums"].memory.shard_optimizer = true;
  all["bfloat16"] = warm_up_options("llama-tiny", "1f1b");
  all["bfloat16"].numbers.dtype = DataType::BFloat16;
  all["bfloat16"].numbers.force_bfloat16 = true;
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    for (const SequenceParallel tokens : {SequenceParallel::Auto, SequenceParallel::None}) {
      TrainOptions& options = all[model + " split layers, tokens cut: " + std::string(to_text(tokens))];
      options = warm_up_options(model, model == "bert-tiny" ? "chimera" : "zb-h1");
      options.schedule.shape = {2, 4};
      options.model.overrides.key_value_heads.reset();
      options.parallel.tensor_parallel = 2;
      options.parallel.sequence_parallel = tokens;
    }
  }
  TrainOptions& odd = all["bfloat16, split layers, an odd vocabulary"];
  odd = all["gpt2-tiny split layers, tokens cut: auto"];
  odd.numbers.dtype = DataType::BFloat16;
  odd.numbers.force_bfloat16 = true;
  odd.model.overrides.vocabulary = 333;
  return all;
}

TEST_F(WarmUpTest, BuiltInModelsUseNoOpFirstWhileATransferIsPending) {
  for (const auto& [name, on_cpu] : all_options()) {
    SCOPED_TRACE(name);
    FakeDevice::get().clear();
    TrainOptions options = on_cpu;
    options.device.kind = DeviceKind::Cuda;
    options.device.transport = TransportKind::Processes;
    if (options.parallel.tensor_parallel == 1) options.device.gpu = 0;
    const Job job = prepare_job(options);
    testing::Trained trained;
    std::int64_t pinned = 0;
    const auto train = [&](RankId rank, Transport& transport) {
      Trainer trainer(job, rank, transport);
      std::vector<double> losses;
      for (std::int64_t step = 0; step < kWarmSteps; ++step) {
        losses.push_back(trainer.train_step(step).loss);
        if (step > 0) continue;
        std::array<double, 1> nothing{};
        transport.all_sum(nothing);  // all ranks have trained a step
        if (rank == RankId(0)) pinned = FakeDevice::pinned_blocks();
        transport.all_sum(nothing);
      }
      const double validation_loss = trainer.validation_loss();
      if (rank != RankId(0)) return;
      trained.losses = losses;
      trained.validation_losses = {validation_loss};
    };
    std::int64_t reduced = 0;
    ASSERT_EQ(on_devices(job.num_ranks(), job.rank_groups(), communicating_pairs(job, job.options),
                         job.canonical.has_value(), train, &reduced, options.parallel.tensor_parallel > 1),
              "");
    EXPECT_EQ(FakeDevice::pinned_blocks(), pinned);
    EXPECT_EQ(reduced > 0, name == "sharded optimizer" || job.cuts_tokens);
    if (options.model.dropout > 0) continue;  // A device draws other masks; FakeDeviceTest compares its schedules
    const testing::Trained expected = testing::train(on_cpu, kWarmSteps);
    const double tolerance = options.numbers.dtype == DataType::BFloat16 ? 1e-3 : 1e-9;  // other products on a device
    EXPECT_THAT(trained.losses, Pointwise(DoubleNear(tolerance), expected.losses));
    EXPECT_NEAR(trained.validation_losses.at(0), expected.validation_losses.at(0), tolerance);
  }
}

/// Otherwise a step would run out of memory where a receive waits.
TEST_F(WarmUpTest, NeedsAtLeastTheMemoryOfTheFirstSteps) {
  for (const std::string schedule : {"1f1b", "chimera", "zb-h1"}) {
    for (const StageRule recompute : {StageRule::None, StageRule::Full}) {
      SCOPED_TRACE(schedule + (recompute == StageRule::Full ? ", recomputed" : ""));
      TrainOptions options = warm_up_options("gpt2-tiny", schedule);
      options.schedule.shape = {4, 8};
      options.device.kind = DeviceKind::Cuda;
      options.device.transport = TransportKind::Processes;
      options.device.gpu = 0;
      options.memory.recompute.rule = recompute;
      const Job job = prepare_job(options);
      MemoryMeter meter(4);
      const auto train = [&](RankId rank, Transport& transport) {
        const MemoryMeter::Recording recording(meter, rank);
        Trainer trainer(job, rank, transport);
        trainer.trace(true, [&] { return meter.take_sample(rank); });
        static_cast<void>(meter.take_sample(rank));
        for (std::int64_t step = 0; step < kWarmSteps; ++step) static_cast<void>(trainer.train_step(step));
        std::int64_t warm_up = 0;  // until the first instruction
        std::int64_t steps = 0;
        for (const auto& step : trainer.tracer()->steps()) {
          for (const MemorySample& sample : step->memory) {
            std::int64_t& peak = warm_up == 0 ? warm_up : steps;
            peak = std::max(peak, sample.peak);
          }
        }
        // Less than a message: numbers and samples that stay from step to step.
        const std::int64_t small = 2 * options.data.sequence * options.data.micro_batch_size * job.model.hidden;
        EXPECT_GE(warm_up + small, steps) << "rank " << rank.value();
      };
      EXPECT_EQ(on_devices(job.num_ranks(), job.rank_groups(), communicating_pairs(job, job.options), false, train),
                "");
    }
  }
}

/// Later, an allocator that is out of memory would wait for receives.
TEST_F(WarmUpTest, AFullGpuEndsTheRunBeforeTheFirstTransfer) {
  TrainOptions options = warm_up_options("gpt2-tiny", "1f1b");
  options.device.kind = DeviceKind::Cuda;
  options.device.transport = TransportKind::Processes;
  options.device.gpu = 0;
  const Job job = prepare_job(options);
  gpus_.used = gpus_.each.memory_bytes - kGpuMargin + 1;
  const auto train = [&](RankId rank, Transport& transport) {
    static_cast<void>(Trainer(job, rank, transport).train_step(0));
  };
  EXPECT_THAT(on_devices(job.num_ranks(), job.rank_groups(), communicating_pairs(job, job.options), false, train),
              HasSubstr("must stay free"));
}

namespace nn = torch::nn;

/// A linear layer on a device. The first one also normalizes over the batch, with buffers.
/// Module::to() cannot move parameters to the fake device.
class BlockImpl : public nn::Module {
 public:
  BlockImpl(at::Device device, bool is_first) : is_first_(is_first) {
    weight_ = register_parameter("weight", at::randn({6, 6}, at::kDouble).mul(0.4).to(device));
    bias_ = register_parameter("bias", at::randn({6}, at::kDouble).mul(0.4).to(device));
    if (!is_first) return;
    mean_ = register_buffer("running_mean", at::zeros({6}, at::kDouble).to(device));
    variance_ = register_buffer("running_var", at::ones({6}, at::kDouble).to(device));
    tracked_ = register_buffer("num_batches_tracked", at::zeros({}, at::kLong).to(device));
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor output = at::gelu(at::linear(input, weight_, bias_));
    if (!is_first_) return output;
    if (is_training()) tracked_.add_(1);
    return at::batch_norm(output, {}, {}, mean_, variance_, is_training(), 0.1, 1e-5, /*cudnn_enabled=*/false);
  }

 private:
  bool is_first_;
  at::Tensor weight_;
  at::Tensor bias_;
  at::Tensor mean_;
  at::Tensor variance_;
  at::Tensor tracked_;
};
TORCH_MODULE(Block);

Model small_network(at::Device device) {
  Model model;
  for (int layer = 0; layer < 4; ++layer) {
    model.layers.push_back([device, layer]() -> Layer { return nn::Sequential(Block(device, layer == 0)); });
  }
  model.loss.sum = [](const at::Tensor& output, const at::Tensor& target) {
    return LossSum{(output - target).square().sum(), target.numel()};
  };
  return model;
}

Data points_on(at::Device device) {
  return [device](const SampleRange& range) {
    const at::Tensor input = at::arange(range.count * 6, at::kDouble).view({range.count, 6}).add(range.first).cos();
    return Batch{input.to(device), input.sin().to(device)};
  };
}

FitOptions warm_fit(const std::string& schedule, const PipelineShape& shape) {
  FitOptions options;
  options.schedule = schedule;
  options.shape = shape;
  options.micro_batch_size = 2;
  options.steps = kWarmSteps;
  options.threads = 1;
  return options;
}

struct Fitted {
  std::vector<double> losses;
  double validation_loss = 0;
  std::int64_t batches_tracked = 0;
};

Fitted fitted(const FitRun& run, RankId rank, Transport& transport) {
  RankFit trainer(run, rank, transport);
  Fitted result;
  for (std::int64_t step = 0; step < run.options.steps; ++step) result.losses.push_back(trainer.train_step(step).loss);
  result.validation_loss = trainer.validation_loss(0);
  for (const auto& [id, stage] : trainer.stages()) {
    for (const Parameter& own : stage->values()) {
      if (own.name == "0.0.num_batches_tracked") result.batches_tracked = own.value.item<std::int64_t>();
    }
  }
  return result;
}

/// Draws random numbers from torch's generator.
class NoiseImpl : public nn::Module {
 public:
  NoiseImpl() { weight_ = register_parameter("weight", at::ones({6}, at::kDouble).to(kWarmDevice)); }
  at::Tensor forward(const at::Tensor& input) { return input * weight_ * at::rand({6}, at::kDouble).to(kWarmDevice); }

 private:
  at::Tensor weight_;
};
TORCH_MODULE(Noise);

/// Ranks are threads with one generator. Its first draw comes after all ranks have saved its state, because
/// RankFit::warm_up() sums the counts of targets in between.
TEST_F(WarmUpTest, ModulesOfUsersDrawTheNumbersThatTheyWouldWithoutIt) {
  const FitOptions options = warm_fit("1f1b", {2, 2});
  Model model = small_network(kWarmDevice);
  for (LayerFactory& layer : model.layers) layer = []() -> Layer { return nn::Sequential(Noise()); };
  const FitRun run = prepare_fit(model, points_on(kWarmDevice), options);
  const auto state = [] { return at::globalContext().defaultGenerator(at::kCPU).get_state(); };
  for (const bool trains : {true, false}) {
    at::Tensor before;
    const auto warm_up = [&](RankId rank, Transport& transport) {
      RankFit trainer(run, rank, transport);
      std::array<double, 1> nothing{};
      transport.all_sum(nothing);  // all ranks have made their stages, which draws too
      if (rank == RankId(0)) before = state();
      trains ? trainer.warm_up() : trainer.warm_up_validation();
    };
    ASSERT_EQ(on_devices(run.num_ranks(), run.rank_groups(), run.communicating_pairs(), false, warm_up), "");
    EXPECT_TRUE(at::equal(state(), before));
    static_cast<void>(at::rand({1}));
    EXPECT_FALSE(at::equal(state(), before));
  }
}

/// Over NVLink a dead peer gives no error to the device, which would wait until a timeout.
TEST_F(WarmUpTest, ModulesOfUsersDoNotWaitForALostPeer) {
  const FitOptions options = warm_fit("1f1b", {2, 2});
  const FitRun run = prepare_fit(small_network(kWarmDevice), points_on(kWarmDevice), options);
  testing::FakeNetwork network(2, run.rank_groups(), run.communicating_pairs());
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    Communicators to = network.communicators(static_cast<int>(rank.value()));
    to.device = kWarmDevice;
    const auto transport = make_pair_transport(std::move(to));
    RankFit trainer(run, rank, *transport);
    static_cast<void>(trainer.train_step(0));
    std::array<double, 1> nothing{};
    transport->all_sum(nothing);  // both ranks are here
    FakeDevice::get().finish_events_up_to(0);
    network.error = c10d::ErrorType::COMM_ERROR;
    static_cast<void>(trainer.train_step(1));
  };
  const auto failed = RankThreads(2).run(2, train, [&](const std::string& why) { network.close(why); });
  ASSERT_TRUE(failed);
  EXPECT_THROW(std::rethrow_exception(failed->error), PeerLostError);
  EXPECT_THAT(what_of(failed->error), HasSubstr("reports that a connection failed"));
}

TEST_F(WarmUpTest, ModulesOfUsersTrainAsOnTheCpu) {
  const FitOptions options = warm_fit("zb-h1", {4, 4});
  const FitRun run = prepare_fit(small_network(kWarmDevice), points_on(kWarmDevice), options);
  Fitted on_device;
  const auto train = [&](RankId rank, Transport& transport) {
    const Fitted own = fitted(run, rank, transport);
    if (rank == RankId(0)) on_device = own;
  };
  ASSERT_EQ(on_devices(run.num_ranks(), run.rank_groups(), run.communicating_pairs(), false, train), "");
  Fitted on_cpu;
  const FitRun cpu_run = prepare_fit(small_network(at::kCPU), points_on(at::kCPU), options);
  run_rank_threads(4, cpu_run.rank_groups(), [&](RankId rank, Transport& transport) {
    const Fitted own = fitted(cpu_run, rank, transport);
    if (rank == RankId(0)) on_cpu = own;
  });
  EXPECT_THAT(on_device.losses, Pointwise(DoubleNear(1e-9), on_cpu.losses));
  EXPECT_NEAR(on_device.validation_loss, on_cpu.validation_loss, 1e-9);
  EXPECT_EQ(on_device.batches_tracked, on_cpu.batches_tracked);
}

}  // namespace
}  // namespace chimera
