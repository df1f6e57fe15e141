// Training on a fake asynchronous device (support/fake_device.h): it gives the CPU's numbers, and the host waits for it
// once per step.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "engine/optimizer.h"
#include "launch/local/place.h"
#include "launch/local/rank.h"
#include "model/linear.h"
#include "runtime/step_reduction.h"
#include "support/fake_gpus.h"
#include "support/fake_network.h"
#include "support/message_of.h"
#include "support/scratch.h"
#include "support/training.h"
#include "train/loop/loader.h"
#include "train/loop/run.h"
#include "train/observe/observation.h"
#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "transport/stream.h"

namespace chimera {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::FakeDevice;
using ::testing::Pointwise;
using ::testing::SizeIs;

const at::Device kDevice(testing::kFakeDevice, 0);

using FakeDeviceTest = testing::FakeGpuTest;

TrainOptions on_device(TrainOptions options) {
  options.device.kind = DeviceKind::Cuda;
  options.device.transport = TransportKind::Threads;
  return options;
}

TrainOptions clipped_options(const std::string& model, const std::string& schedule) {
  TrainOptions options = testing::small_options(model, schedule, {4, 4});
  options.updates.clip = 0.5;  // less than the norm
  options.updates.optimizer.weight_decay = 0.1;
  return options;
}

void expect_same(const testing::Trained& device, const testing::Trained& expected) {
  EXPECT_THAT(device.losses, Pointwise(DoubleNear(1e-9), expected.losses));
  EXPECT_THAT(device.gradient_norms, Pointwise(DoubleNear(1e-9), expected.gradient_norms));
  for (const auto& [name, values] : device.parameters) {
    EXPECT_TRUE(values.front().device() == kDevice) << name;
    EXPECT_TRUE(at::allclose(values.front().cpu(), expected.parameters.at(name).front().cpu(), 0, 1e-9)) << name;
  }
}

TEST_F(FakeDeviceTest, EveryKindOfScheduleTrainsAsOnTheCpu) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    for (const std::string schedule : {"none", "1f1b", "chimera", "zb-h1"}) {
      SCOPED_TRACE(model + " " + schedule);
      const TrainOptions options = clipped_options(model, schedule);
      expect_same(testing::train(on_device(options), 3), testing::train(options, 3));
    }
  }
}

/// The device's masks are not the CPU's, but equal for all schedules and for recomputation.
TEST_F(FakeDeviceTest, EveryKindOfScheduleDropsTheSameElements) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    const auto trained = [&](const std::string& schedule, StageRule recompute) {
      TrainOptions options = on_device(clipped_options(model, schedule));
      options.model.dropout = 0.1;
      options.memory.recompute.rule = recompute;
      return testing::train(options, 3);
    };
    const testing::Trained expected = trained("none", StageRule::None);
    for (const std::string schedule : {"1f1b", "chimera", "zb-h1"}) {
      SCOPED_TRACE(model + " " + schedule);
      expect_same(trained(schedule, StageRule::None), expected);
    }
    for (const StageRule rule : {StageRule::Full, StageRule::Attention, StageRule::Cheap}) {
      expect_same(trained("none", rule), expected);
      expect_same(trained("zb-h1", rule), expected);
    }
  }
}

TEST_F(FakeDeviceTest, CanonicalRunsUseDeterministicKernels) {
  const auto settings = [] {
    const at::Context& torch = at::globalContext();
    return std::array{torch.deterministicAlgorithms(), torch.deterministicAlgorithmsWarnOnly(),
                      torch.deterministicFillUninitializedMemory()};
  };
  const auto before = settings();
  ASSERT_FALSE(before.front());
  const std::array canonical{true, false, false};
  TrainOptions options = on_device(clipped_options("gpt2-tiny", "1f1b"));
  for (const ReductionOrder reduction : {ReductionOrder::Natural, ReductionOrder::Canonical, ReductionOrder::Natural}) {
    options.numbers.reduction = reduction;
    const Job job = prepare_job(options);
    run_rank_threads(static_cast<int>(job.run.num_ranks()), job.run.rank_groups(),
                     [&](RankId rank, Transport& transport) {
                       const PooledStreamGuard stream(device_of(options, rank));
                       Trainer trainer(job, rank, transport);
                       static_cast<void>(trainer.train_step(0));
                       EXPECT_EQ(settings(), reduction == ReductionOrder::Canonical ? canonical : before);
                     });
    EXPECT_EQ(settings(), before);
  }
}

TEST_F(FakeDeviceTest, EveryModelTrainsCanonically) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    SCOPED_TRACE(model);
    TrainOptions options = clipped_options(model, "1f1b");
    options.numbers.reduction = ReductionOrder::Canonical;
    const testing::Trained device = testing::train(on_device(options), 3);
    EXPECT_THAT(device.losses, Pointwise(DoubleNear(1e-9), testing::train(options, 3).losses));
  }
}

/// Calls that made the host of any rank wait in two steps of training, without startup.
std::vector<std::string> waits_of_two_steps(const TrainOptions& options) {
  std::vector<std::string> waits;
  for (const std::int64_t steps : {1, 3}) {
    FakeDevice::get().clear();
    FakeDevice::get().answer_late();
    const Job job = prepare_job(options);
    run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
      at::set_num_threads(1);
      const PooledStreamGuard stream(device_of(options, rank));
      Trainer trainer(job, rank, transport);
      trainer.trace(true);  // Waits for nothing until its times are read
      for (std::int64_t step = 0; step < steps; ++step) static_cast<void>(trainer.train_step(step));
    });
    std::vector<std::string> all = FakeDevice::get().waits();
    for (const std::string& before : waits) {  // calls during startup and the first step
      if (const auto found = std::ranges::find(all, before); found != all.end()) all.erase(found);
    }
    waits = std::move(all);
  }
  return waits;
}

TEST_F(FakeDeviceTest, TheHostWaitsForTheDeviceOnceAStep) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    for (const std::string schedule : {"none", "chimera", "zb-h1"}) {
      TrainOptions options = on_device(clipped_options(model, schedule));
      options.model.dropout = 0.1;
      const std::vector<std::string> waits = waits_of_two_steps(options);
      const std::size_t ranks = schedule == "none" ? 1 : 4;
      EXPECT_THAT(waits, SizeIs(2 * ranks)) << model << " " << schedule << ": " << fmt::format("{}", waits);
    }
  }
}

TEST_F(FakeDeviceTest, TracesHaveTheDevicesTimesByTheHostsClock) {
  TrainOptions options = on_device(clipped_options("gpt2-tiny", "zb-h1"));
  options.memory.recompute.rule = StageRule::Full;
  options.updates.steps = 3;
  const Job job = prepare_job(options);
  std::vector<RecordedStep> steps;
  OpTimes times(0);
  std::map<std::string, int> ranges;
  std::mutex mutex;
  gpus_.names_range = [&](const std::string& name) {
    const std::scoped_lock lock(mutex);
    ++ranges[name];
  };
  const double begin = monotonic_seconds();
  run_rank_threads(4, job.rank_groups(), [&](RankId rank, Transport& transport) {
    const PooledStreamGuard stream(device_of(options, rank));
    Trainer trainer(job, rank, transport);
    trainer.trace(true);
    const RunSummary run = trainer.run([](const StepMetrics&) {});
    auto gathered = gather_steps(job, options.device, rank, transport, *trainer.tracer());
    if (rank != RankId(0)) return;
    steps = std::move(gathered);
    times = run.op_times;
  });
  ASSERT_EQ(steps.size(), 3U);
  for (const RecordedStep& step : steps) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const std::vector<double>& boundaries = step.boundaries[rank];
      EXPECT_EQ(boundaries.size(), job.programs.training.workers[rank].size() + 1);
      EXPECT_TRUE(std::ranges::is_sorted(boundaries));
      EXPECT_GT(boundaries.front(), begin);
      EXPECT_LT(boundaries.back(), monotonic_seconds());
    }
  }
  for (const OpKind kind : {OpKind::Forward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
    EXPECT_EQ(times.count(StageId(1), kind), 8) << "two steps after the first";
    EXPECT_GT(times.mean(StageId(1), kind).wall_seconds, 0);
  }
  EXPECT_GT(times.mean_recomputation(StageId(1)).wall_seconds, 0);
  EXPECT_EQ(times.total(&Duration::cpu_seconds), 0) << "of the host";
  EXPECT_EQ(ranges["1F2"], 3);
  EXPECT_EQ(ranges[""], 12) << "each rank ends the last range of a step";
}

TEST_F(FakeDeviceTest, ThePlanCountsAGpusLogits) {
  const TrainOptions options = clipped_options("gpt2-tiny", "1f1b");
  EXPECT_EQ(workload_of(options).logits_of_chunk, kLogitsOfChunk);
  EXPECT_EQ(workload_of(on_device(options)).logits_of_chunk, kLogitsOfGpuChunk);
}

TEST_F(FakeDeviceTest, RepeatedEventQueriesCountAsAWait) {
  const at::Tensor there = at::ones({3}, kDevice);
  FakeDevice::get().answer_late();
  const auto look = [mark = StreamMark(kDevice)] { return mark.is_reached(); };
  EXPECT_FALSE(look());
  there.add_(1);  // the host has issued more work
  EXPECT_THAT(FakeDevice::get().waits(), ElementsAre());
  while (!look()) {
  }
  EXPECT_TRUE(look());
  static_cast<void>(there.cpu());
  EXPECT_THAT(FakeDevice::get().waits(), SizeIs(1)) << "the same wait";
  EXPECT_TRUE(look() && look());
  there.add_(1);
  EXPECT_THAT(FakeDevice::get().waits(), SizeIs(2));
}

TEST_F(FakeDeviceTest, OptimizersAndDataTypesAddNoWaits) {
  for (const OptimizerKind optimizer : {OptimizerKind::AdamW, OptimizerKind::Lamb, OptimizerKind::Sgd}) {
    for (const DataType dtype : {DataType::Float32, DataType::BFloat16}) {
      TrainOptions options = on_device(clipped_options("gpt2-tiny", "1f1b"));
      options.numbers.dtype = dtype;
      options.updates.optimizer.kind = optimizer;
      EXPECT_THAT(waits_of_two_steps(options), SizeIs(8)) << to_text(optimizer) << " " << to_text(dtype);
    }
  }
}

TEST_F(FakeDeviceTest, OptimizersUpdateAsOnTheCpu) {
  for (const OptimizerKind optimizer : {OptimizerKind::Lamb, OptimizerKind::Sgd}) {
    TrainOptions options = clipped_options("gpt2-tiny", "none");
    options.updates.optimizer.kind = optimizer;
    const testing::Trained cpu = testing::train(options, 3);
    EXPECT_THAT(testing::train(on_device(options), 3).losses, Pointwise(DoubleNear(1e-9), cpu.losses));
  }
}

TEST_F(FakeDeviceTest, ProductsOfBfloat16AreAddedToFloat32UnroundedAndInPlace) {
  for (const WeightLayout layout : {WeightLayout::InOut, WeightLayout::OutIn}) {
    const at::Tensor input = at::rand({7, 3}).to(at::kBFloat16);
    const at::Tensor output = at::rand({7, 5}).to(at::kBFloat16);
    at::Tensor product = input.to(at::kFloat).t().mm(output.to(at::kFloat));  // [in, out]
    if (layout == WeightLayout::OutIn) product = product.t();
    Linear layer{.weight = at::zeros(product.sizes(), kDevice).requires_grad_(), .bias = {}, .layout = layout};
    const at::Tensor gradient = gradient_of(layer.weight);
    gradient.fill_(0.25);
    add_weight_gradient(layer, input.to(kDevice), output.to(kDevice));
    EXPECT_TRUE(layer.weight.grad().is_same(gradient));
    EXPECT_TRUE(at::allclose(gradient.cpu(), product + 0.25, 0, 1e-6));
  }
}

TEST_F(FakeDeviceTest, WithoutPinnedMemoryTheHostWouldWait) {
  static_cast<void>(at::ones({3}).to(kDevice));
  static_cast<void>(at::ones({3}).to(kDevice, /*non_blocking=*/true));
  static_cast<void>(at::ones({3}).pin_memory().to(kDevice, /*non_blocking=*/true));
  static_cast<void>(at::ones({3}, kDevice).sum().item());
  EXPECT_THAT(FakeDevice::get().waits(), ElementsAre("copies 3 elements to the device",
                                                     "copies to the device, but not pinned", "reads an element"));
}

TEST_F(FakeDeviceTest, LoaderPinsPrefetchedData) {
  TrainOptions options = on_device(testing::small_options("bert-tiny", "1f1b", {4, 4}));
  const Job job = prepare_job(options);
  Loader loader(job, {GroupId(0), WorkerId(0)}, kDevice);
  for (std::int64_t step = 0; step < 3; ++step) {
    loader.begin_step(step);
    for (std::int64_t m = 0; m < 4; ++m) {
      const MicroBatch batch = loader.training(step, StageId(0), MicroBatchId(m));
      const MicroBatch right = make_micro_batch(
          *job.data.training, job.model.family,
          {step, job.run.first_sample(GroupId(0), MicroBatchId(m)), job.run.samples_per_op(), job.run.mini_batch()});
      EXPECT_TRUE(batch.tokens.device() == kDevice);
      EXPECT_THAT(FakeDevice::get().waits(), ElementsAre());
      EXPECT_TRUE(at::equal(batch.tokens.cpu(), right.tokens)) << step << " " << m;
      EXPECT_TRUE(at::equal(batch.targets.cpu(), right.targets)) << step << " " << m;
      FakeDevice::get().clear();
    }
  }
  EXPECT_EQ(loader.cache_misses(), 0);
}

/// A GPU would end the process, without a word on the token.
TEST_F(FakeDeviceTest, LoaderNamesATokenOutsideTheVocabulary) {
  TrainOptions options = on_device(testing::small_options("gpt2-tiny", "1f1b", {4, 4}));
  Job job = prepare_job(options);
  job.model.vocabulary = 3;
  Loader loader(job, {GroupId(0), WorkerId(0)}, kDevice);
  loader.begin_step(0);
  EXPECT_THAT(
      testing::message_of([&] { static_cast<void>(loader.training(0, StageId(0), MicroBatchId(0))); }, "accepted"),
      ::testing::HasSubstr("lies outside the model's vocabulary of 3"));
}

TEST_F(FakeDeviceTest, LoaderAllocatesNoPinnedMemoryAfterItsWarmUp) {
  for (const std::string model : {"gpt2-tiny", "bert-tiny"}) {
    SCOPED_TRACE(model);
    FakeDevice::get().clear();
    TrainOptions options = on_device(testing::small_options(model, "1f1b", {2, 4}));
    options.updates.steps = 20;
    options.data.validate_every = 1;
    const Job job = prepare_job(options);
    std::int64_t before = 0;
    {
      Loader loader(job, {GroupId(0), WorkerId(0)}, kDevice);
      for (std::int64_t step = 0; step < options.updates.steps; ++step) {
        loader.begin_step(step);
        if (step == 0) {
          loader.warm_up(step);
          before = FakeDevice::pinned_blocks();
        }
        std::vector<MicroBatch> kept;
        for (std::int64_t m = 0; m < 4; ++m) kept.push_back(loader.training(step, StageId(0), MicroBatchId(m)));
        for (std::int64_t m = 0; m < 4; ++m) kept.push_back(loader.validation(0, StageId(0), MicroBatchId(m)));
      }
    }
    EXPECT_EQ(FakeDevice::pinned_blocks(), before);
  }
}

TEST_F(FakeDeviceTest, NormsEqualTheCpus) {
  const std::vector<at::Tensor> tensors = {at::rand({5, 7}), at::rand({1}), at::rand({300}).sub(0.5)};
  std::vector<at::Tensor> there;
  for (const at::Tensor& tensor : tensors) there.push_back(tensor.to(kDevice));
  const at::Tensor sums = sums_of_squares(there).cpu();
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(sums[i].item<double>(), sum_of_squares(tensors[static_cast<std::size_t>(i)]), 1e-9);
}

TEST_F(FakeDeviceTest, MetricsHaveTheMemoryOfTheWholeGpu) {
  gpus_.peak = 1000;
  gpus_.used = 5000;
  gpus_.retries = 7;
  for (const bool is_there : {false, true}) {
    TrainOptions options = clipped_options("gpt2-tiny", "1f1b");
    if (is_there) options = on_device(options);
    const Job job = prepare_job(options);
    run_rank_threads(4, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
      const PooledStreamGuard stream(device_of(options, rank));
      Trainer trainer(job, rank, transport);
      const StepMetrics metrics = trainer.train_step(0);
      EXPECT_EQ(metrics.used_memory_bytes, is_there ? std::optional(5000.0) : std::nullopt);
      EXPECT_EQ(metrics.allocation_retries, is_there ? std::optional(7.0) : std::nullopt);
      if (is_there) EXPECT_EQ(metrics.peak_memory_bytes, 1000);
    });
  }
}

/// Bytes that sums of two steps of two layers' ranks send, and the losses.
std::pair<std::int64_t, std::vector<double>> sums_of_two_steps(SequenceParallel tokens) {
  TrainOptions options = on_device(testing::small_options("llama-tiny", "1f1b", {2, 4}));
  options.device.transport = TransportKind::Processes;  // A device each: autograd has one thread per device
  options.data.sequence = 64;
  options.model.overrides.key_value_heads = 2;
  options.parallel = {.tensor_parallel = 2, .sequence_parallel = tokens};
  const Job job = prepare_job(options);
  const auto ranks = static_cast<int>(job.num_ranks());
  testing::FakeNetwork network(ranks, job.rank_groups(), communicating_pairs(job, job.options));
  std::vector<double> losses;
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    const at::Device device = device_of(options, rank);
    const PooledStreamGuard stream(device);
    Communicators to = network.communicators(static_cast<int>(rank.value()));
    to.device = device;
    const auto transport = make_pair_transport(std::move(to));
    Trainer trainer(job, rank, *transport);
    for (std::int64_t step = 0; step < 2; ++step) {
      const StepMetrics metrics = trainer.train_step(step);
      if (rank == RankId(0)) losses.push_back(metrics.loss);
      EXPECT_GT(metrics.op_sum_seconds, 0) << "by the device's clock";
    }
  };
  EXPECT_FALSE(RankThreads(ranks).run(ranks, train, [&](const std::string& why) { network.close(why); }));
  using Kind = testing::FakeNetwork::Kind;
  std::int64_t bytes = 0;
  for (const Kind kind : {Kind::AllReduce, Kind::AllGather, Kind::Broadcast, Kind::Reduce, Kind::ReduceScatter})
    bytes += network.sent_bytes(kind);
  EXPECT_EQ(network.sent_bytes(Kind::Broadcast), 0);
  return {bytes, losses};
}

TEST_F(FakeDeviceTest, DividedTokensSendNoMoreThanAllReduces) {
  const auto [of_all, expected] = sums_of_two_steps(SequenceParallel::None);
  const auto [of_shares, losses] = sums_of_two_steps(SequenceParallel::Auto);
  EXPECT_THAT(losses, Pointwise(DoubleNear(1e-9), expected));
  // A rank has the gradients of norms for its tokens alone, so that they are summed too: in 8 layers of width 16 and
  // the head, in two steps and the warm-up, and twice in a ring.
  constexpr std::int64_t kNorms = 3 * 2 * (2 * 8 + 1) * 16 * sizeof(double);
  EXPECT_LE(of_shares, of_all + kNorms);
}

/// Fails at its first operation, and in its destructor records the errors reported so far.
class FailingTransport final : public Transport {
 public:
  FailingTransport(int reports, std::string& reported) : reports_(reports), reported_(reported) {}
  FailingTransport(const FailingTransport&) = delete;
  FailingTransport& operator=(const FailingTransport&) = delete;
  ~FailingTransport() override {
    std::array<char, 4096> text{};
    reported_.assign(text.data(), static_cast<std::size_t>(std::max<ssize_t>(::read(reports_, text.data(), 4096), 0)));
  }
  std::unique_ptr<Pending> start_send(RankId, at::Tensor, const MessageTag&) override { fail(); }
  std::unique_ptr<Pending> post_receive(RankId, const TensorSpec&, const MessageTag&) override { fail(); }
  std::unique_ptr<Pending> start_sum(ParameterGroupId, GradientSum) override { fail(); }
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId, at::Tensor, const std::vector<std::int64_t>&) override {
    fail();
  }
  void all_sum(std::span<double>) override { fail(); }

 private:
  [[noreturn]] static void fail() { throw TransportError("the cable is cut"); }
  int reports_;
  std::string& reported_;
};

/// The environment of a rank that launch() started.
class LaunchedHere {
 public:
  LaunchedHere() {
    EXPECT_EQ(::pipe2(pipe_.data(), O_NONBLOCK), 0);
    for (const auto& [name, value] : variables()) ::setenv(name, std::to_string(value).c_str(), 1);
  }
  LaunchedHere(const LaunchedHere&) = delete;
  LaunchedHere& operator=(const LaunchedHere&) = delete;
  ~LaunchedHere() {
    for (const auto& [name, value] : variables()) ::unsetenv(name);
    for (const int end : pipe_) ::close(end);
  }
  [[nodiscard]] int reports() const { return pipe_[0]; }

 private:
  [[nodiscard]] std::map<const char*, int> variables() const {
    return {{kLauncherVariable, ::getppid()}, {kReportVariable, pipe_[1]}, {kRankVariable, 0}};
  }
  std::array<int, 2> pipe_{};
};

/// Aborting NCCL's communicators may take long.
TEST_F(FakeDeviceTest, NcclRankReportsItsFailureBeforeItAborts) {
  const LaunchedHere launched;
  std::string reported;
  gpus_.connects = [&](const NcclOptions&) { return std::make_unique<FailingTransport>(launched.reports(), reported); };
  TrainOptions options = on_device(clipped_options("gpt2-tiny", "1f1b"));
  options.device.transport = TransportKind::Processes;
  RankEnvironment rank;
  rank.world_size = 4;
  EXPECT_NE(run_rank(prepare_job(options), rank), 0);
  const auto report = parse_report(reported.substr(0, reported.find('\n')));
  ASSERT_TRUE(report) << "nothing was reported by then";
  EXPECT_THAT(report->message, ::testing::HasSubstr("the cable is cut"));
  EXPECT_EQ(std::ranges::count(reported, '\n'), 1);
}

std::vector<int> own_cores() {
  cpu_set_t mask;
  EXPECT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

TEST_F(FakeDeviceTest, ARankConnectsNearItsGpuAndNotesEachCommunicator) {
  const testing::Scratch scratch;
  const std::vector<int> all = own_cores();
  scratch.write("local_cpulist", std::to_string(all.back()));
  gpus_.each.pci = scratch.path("");  // an absolute path replaces the folder of PCI devices
  ProgressPage page(1);
  std::vector<int> cores;
  std::uint64_t notes = 0;
  bool has_early_sums = false;
  gpus_.connects = [&](const NcclOptions& options) -> std::unique_ptr<Transport> {
    cores = own_cores();
    notes = page.count(0);
    options.on_group_connected();
    notes = page.count(0) - notes;
    has_early_sums = options.has_early_sums;
    throw TransportError("nobody is there");
  };
  TrainOptions options = on_device(testing::small_options("gpt2-tiny", "chimera", {4, 4}));
  options.device.transport = TransportKind::Processes;
  const Job job = prepare_job(options);
  std::thread([&] {  // whose cores end with it
    set_progress_page(&page, 0);
    RankEnvironment rank;
    rank.world_size = 4;
    EXPECT_NE(run_rank(job, rank), 0);
    set_progress_page(nullptr, 0);
  })
      .join();
  const bool may_bind = std::ssize(all) == ::sysconf(_SC_NPROCESSORS_ONLN);
  EXPECT_EQ(cores, may_bind ? std::vector<int>{all.back()} : all);
  EXPECT_EQ(notes, 1U);
  EXPECT_TRUE(has_early_sums);
}

/// Over pairwise communicators, the numbers of all ranks are added on the device.
TEST_F(FakeDeviceTest, SumsOverAllRanksAreReadOnce) {
  testing::FakeNetwork network(1, {}, {});
  const auto alone = make_pair_transport(network.communicators(0));
  const at::Tensor values = at::full({2}, 0.5, at::TensorOptions(kDevice).dtype(at::kDouble));
  EXPECT_THAT(alone->sum_to_host(values, {}), ElementsAre(0.5, 0.5));
  EXPECT_THAT(FakeDevice::get().waits(), SizeIs(1));
}

}  // namespace
}  // namespace chimera
