// Handing tensors between threads on a device that works in streams: here a device that only writes down what its
// streams are told.

#include "transport/stream.h"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

constexpr auto kFake = c10::DeviceType::PrivateUse1;
const at::Device kDevice(kFake, 0);

std::mutex mutex;
std::vector<std::string> lines;
std::atomic<std::intptr_t> events = 0;
std::atomic<c10::StreamId> streams = 0;
thread_local c10::StreamId current = 0;

void write(std::string line) {
  const std::scoped_lock lock(mutex);
  lines.push_back(std::move(line));
}

struct FakeStreams final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kFake;
  FakeStreams() = default;
  explicit FakeStreams(c10::DeviceType /*type*/) {}
  [[nodiscard]] c10::DeviceType type() const override { return kFake; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  [[nodiscard]] c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, ++streams);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, std::exchange(current, stream.id()));
  }
  /// None that autograd should start threads for.
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 0; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {
    *event = reinterpret_cast<void*>(++events);
    write(fmt::format("stream {} records event {}", stream.id(), events.load()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    write(fmt::format("stream {} awaits event {}", stream.id(), reinterpret_cast<std::intptr_t>(event)));
  }
  void destroyEvent(void* /*event*/, const c10::DeviceIndex /*index*/) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeStreams);

void record_stream(at::Tensor& /*tensor*/, at::Stream stream) {
  write(fmt::format("memory is kept for stream {}", stream.id()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("record_stream", record_stream); }

/// A tensor of that device, whose elements nobody looks at.
at::Tensor fake_tensor() {
  static float element = 0;
  return at::for_blob(&element, {1})
      .options(at::TensorOptions(kDevice).dtype(at::kFloat))
      .target_device(kDevice)
      .make_tensor();
}

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    lines.clear();
    events = 0;
    streams = 0;
  }
};

TEST_F(StreamTest, TheReceiversStreamWaitsForTheSendersAndKeepsTheMemory) {
  ThreadHub hub(2, {});
  std::thread([&] {
    const OwnStream stream(kDevice);
    hub.transport(RankId(0))->start_send(RankId(1), fake_tensor(), {})->wait();
  }).join();
  std::thread([&] {
    const OwnStream stream(kDevice);
    const auto transport = hub.transport(RankId(1));
    static_cast<void>(transport->post_receive(RankId(0), {.sizes = {1}, .dtype = at::kFloat}, {})->wait());
  }).join();
  EXPECT_THAT(lines, ElementsAre("stream 1 records event 1", "stream 2 awaits event 1", "memory is kept for stream 2"));
}

TEST_F(StreamTest, AThreadHasItsStreamBackAfterwards) {
  {
    const OwnStream stream(kDevice);
    EXPECT_EQ(current, 1);
  }
  EXPECT_EQ(current, 0);
}

TEST_F(StreamTest, ARankWorksOnItsStreamBetweenWhatTheCallerMarks) {
  const RankStream stream(kDevice);
  for (int step = 0; step < 2; ++step) {
    const StreamMark begin(kDevice);
    const StreamMark end = stream.run(begin, [] { EXPECT_EQ(current, 1); });
    end.await();
    EXPECT_EQ(current, 0);
  }
  EXPECT_THAT(lines, ElementsAre("stream 0 records event 1", "stream 1 awaits event 1", "stream 1 records event 2",
                                 "stream 0 awaits event 2", "stream 0 records event 3", "stream 1 awaits event 3",
                                 "stream 1 records event 4", "stream 0 awaits event 4"));
}

TEST_F(StreamTest, OnTheCpuThereIsNothingToDo) {
  bool has_run = false;
  RankStream(at::kCPU).run(StreamMark(at::kCPU), [&] { has_run = true; }).await();
  EXPECT_TRUE(has_run);
  const OwnStream stream(at::kCPU);
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(Handover(tensor).take().is_same(tensor));
  EXPECT_FALSE(Handover().take().defined());
  EXPECT_THAT(lines, ElementsAre());
}

}  // namespace
}  // namespace chimera
