// Progress of a rank whose device lags behind its host, and during hashes and copies of many tensors.

#include "train/setup/device_progress.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <thread>

#include "launch/local/rank.h"
#include "support/fake_accelerator.h"
#include "support/fake_device.h"
#include "support/scratch.h"
#include "support/training.h"
#include "train/recover/state_hash.h"
#include "train/setup/device.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using testing::FakeDevice;
using ::testing::SizeIs;

const at::Device kLaggard(testing::kFakeDevice, 0);

RankProgress step(std::int64_t number) { return {.phase = RankProgress::Phase::Steps, .step = number}; }

class DeviceProgressTest : public ::testing::Test {
 protected:
  DeviceProgressTest() {
    FakeDevice::get().clear();
    set_progress_page(&page_, 0);
  }
  ~DeviceProgressTest() override { set_progress_page(nullptr, 0); }

  ProgressPage page_{1};
};

TEST_F(DeviceProgressTest, IsImmediateOnTheCpu) {
  DeviceProgress progress(at::kCPU);
  progress.note(step(7));
  EXPECT_EQ(page_.last(0).step, 7);
  progress.catch_up();
  EXPECT_EQ(page_.count(0), 1U);
}

TEST_F(DeviceProgressTest, LaunchedWorkIsNotProgress) {
  FakeDevice::get().finish_events_up_to(0);  // the device makes no progress
  DeviceProgress progress(kLaggard);
  for (std::int64_t number = 1; number <= 3; ++number) progress.note(step(number));
  EXPECT_EQ(page_.count(0), 0U);
  EXPECT_EQ(progress.behind(), 3U);
  FakeDevice::get().finish_events_up_to(2);
  progress.note(step(4));
  EXPECT_EQ(page_.count(0), 2U);
  EXPECT_EQ(page_.last(0).step, 2);
}

TEST_F(DeviceProgressTest, ALostPeerEndsTheWaitForTheDevice) {
  FakeDevice::get().finish_events_up_to(0);  // for ever
  DeviceProgress progress(kLaggard, [] { throw PeerLostError("a cable is cut"); });
  progress.note(step(1));
  EXPECT_THROW(progress.catch_up(), PeerLostError);
  FakeDevice::get().finish_events_up_to(1);
  EXPECT_NO_THROW(progress.catch_up()) << "nothing to wait for";
}

TEST_F(DeviceProgressTest, NotesTellHowOftenMemoryWasFull) {
  testing::FakeAccelerator gpus;
  const testing::ScopedAcceleratorOverride instead(gpus);
  DeviceProgress progress(kLaggard);
  gpus.retries = 2;
  static_cast<void>(progress.observe(1));
  gpus.retries = 5;
  progress.note(step(1));
  progress.catch_up();
  EXPECT_EQ(page_.last(0).allocation_retries, 2U);
}

TEST_F(DeviceProgressTest, DeviceProgressIsVisibleWhileTheHostWaits) {
  FakeDevice::get().finish_events_up_to(0);
  std::promise<void> all_noted;
  auto rank = std::async(std::launch::async, [&] {
    set_progress_page(&page_, 0);
    DeviceProgress progress(kLaggard);
    for (std::int64_t number = 1; number <= 3; ++number) progress.note(step(number));
    all_noted.set_value();
    progress.catch_up();
    set_progress_page(nullptr, 0);
    return progress.behind();
  });
  all_noted.get_future().wait();
  for (std::intptr_t event = 1; event <= 3; ++event) {
    EXPECT_LT(page_.count(0), static_cast<std::uint64_t>(event));
    FakeDevice::get().finish_events_up_to(event);
    while (page_.count(0) < static_cast<std::uint64_t>(event)) std::this_thread::yield();
  }
  EXPECT_EQ(rank.get(), 0U);
  EXPECT_EQ(page_.last(0).step, 3);
}

TEST_F(DeviceProgressTest, MoreOfAnActivityIsCountedWhenTheDeviceReachesIt) {
  FakeDevice::get().finish_events_up_to(0);
  DeviceProgress progress(kLaggard);
  progress.note(step(4));
  progress.note_more();
  progress.note_more();
  FakeDevice::get().finish_events_up_to(2);
  progress.note_more();
  EXPECT_EQ(page_.count(0), 2U);
  EXPECT_EQ(page_.last(0).step, 4);
  DeviceProgress on_cpu(at::kCPU);
  on_cpu.note_more();
  EXPECT_EQ(page_.count(0), 3U);
}

class HashesTest : public ::testing::Test {
 protected:
  HashesTest() {
    FakeDevice::install();
    FakeDevice::get().clear();
  }

  static std::vector<at::Tensor> there(std::vector<at::Tensor> tensors) {
    for (at::Tensor& tensor : tensors) tensor = tensor.to(kLaggard);
    return tensors;
  }
};

TEST_F(HashesTest, ADeviceHashesLikeTheCpuAndWaitsOnce) {
  const std::vector<at::Tensor> tensors = {at::rand({5, 7}), at::rand({3}).to(at::kBFloat16),
                                           at::rand({4}, at::kDouble), at::zeros({}), at::rand({(1 << 22) + 3})};
  const std::vector<at::Tensor> copies = there(tensors);
  FakeDevice::get().clear();
  int after = 0;
  bool has_waited = false;
  const std::uint64_t hash =
      hash_bytes(copies, {.after_tensor = [&] { ++after; }, .before_wait = [&] { has_waited = after == 5; }});
  EXPECT_EQ(hash, element_hash(tensors));
  EXPECT_EQ(after, 5);
  EXPECT_TRUE(has_waited);
  EXPECT_THAT(FakeDevice::get().waits(), SizeIs(1));
}

TEST_F(HashesTest, AChangedBitChangesTheHash) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor tensor = at::rand({37}, at::kDouble).to(type);
    const std::vector<at::Tensor> tensors = {at::zeros({3}), tensor, at::zeros({3})};
    const std::uint64_t before = element_hash(tensors);
    auto* bytes = static_cast<std::uint8_t*>(tensor.data_ptr());
    for (std::size_t bit = 0; bit < 8 * tensor.nbytes(); ++bit) {
      const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
      bytes[bit / 8] ^= mask;
      EXPECT_NE(element_hash(tensors), before) << type << " " << bit;
      bytes[bit / 8] ^= mask;
    }
    EXPECT_EQ(element_hash(tensors), before);
  }
}

TEST_F(HashesTest, TheOrderOfElementsAndTensorsMatters) {
  const at::Tensor left = at::tensor({1.0F, 2.0F, 3.0F});
  const at::Tensor right = at::tensor({3.0F, 2.0F, 1.0F});
  EXPECT_NE(element_hash(std::vector{left}), element_hash(std::vector{right}));
  EXPECT_NE(element_hash(std::vector{left, right}), element_hash(std::vector{right, left}));
  EXPECT_NE(element_hash(std::vector{at::tensor({0.0F})}), element_hash(std::vector{at::tensor({-0.0F})}));
}

/// Progress notes of a run, by rank.
std::vector<std::int64_t> notes_of(const Job& job, std::vector<std::int64_t>& parameters) {
  const auto ranks = static_cast<int>(job.run.num_ranks());
  ProgressPage page(ranks);
  std::vector<std::int64_t> notes(static_cast<std::size_t>(ranks));
  parameters = notes;
  run_rank_threads(ranks, job.run.rank_groups(), [&](RankId rank, Transport& transport) {
    const PooledStreamGuard stream(device_of(job.options, rank));
    Trainer trainer(job, rank, transport);
    set_progress_page(&page, static_cast<int>(rank.value()));
    static_cast<void>(trainer.run([](const StepMetrics&) {}));
    set_progress_page(nullptr, 0);
    notes[rank.index()] = static_cast<std::int64_t>(page.count(static_cast<int>(rank.value())));
    for (const auto& [id, group] : trainer.model().groups())
      parameters[rank.index()] += std::ssize(group->parameters());
  });
  return notes;
}

/// The first step is saved, so all copies are compared after both steps.
TEST_F(HashesTest, EveryTensorOfAHashOrCopyIsProgress) {
  const testing::Scratch scratch;
  testing::FakeAccelerator gpus;
  gpus.device_type = testing::kFakeDevice;
  const testing::ScopedAcceleratorOverride instead(gpus);
  TrainOptions options = testing::small_options("llama-tiny", "chimera", {4, 4});
  options.updates.steps = 2;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.checkpoint.every = {.steps = 1};
  for (const DeviceKind device : {DeviceKind::Cpu, DeviceKind::Cuda}) {
    options.device.kind = device;
    options.checkpoint.folder = scratch.path(to_text(device));
    options.device.transport = TransportKind::Threads;
    const Job job = prepare_job(options);
    std::vector<std::int64_t> parameters;
    const std::vector<std::int64_t> notes = notes_of(job, parameters);
    std::int64_t instructions = 0;
    for (const auto& worker : job.programs.training.workers) instructions += std::ssize(worker);
    const auto held = std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0});
    const auto all = std::ssize(job.parameters);
    EXPECT_EQ(held, 2 * all) << "two copies of each stage";
    constexpr std::int64_t kTensors = 3;                               // a weight and its two moments
    const std::int64_t programs = device == DeviceKind::Cuda ? 3 : 2;  // two steps, on a device with a warm-up
    EXPECT_EQ(std::accumulate(notes.begin(), notes.end(), std::int64_t{0}),
              programs * instructions + 2 * kTensors * held + 2 * all + kTensors * all)
        << "instructions, hashes of copies, hashes of parameters, the checkpoint";
  }
}

}  // namespace
}  // namespace chimera
