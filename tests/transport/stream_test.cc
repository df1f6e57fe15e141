// Hands tensors between threads on a fake device, which records the calls to its streams.

#include "transport/stream.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "support/fake_device.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

using testing::current_fake_stream;
using testing::FakeDevice;

const at::Device kDevice(testing::kFakeDevice, 0);

/// A tensor of the fake device; its elements are never read.
at::Tensor fake_tensor() {
  static float element = 0;
  return at::for_blob(&element, {1})
      .options(at::TensorOptions(kDevice).dtype(at::kFloat))
      .target_device(kDevice)
      .make_tensor();
}

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() { FakeDevice::get().clear(); }
};

TEST_F(StreamTest, TheReceiversStreamWaitsForTheSendersAndKeepsTheMemory) {
  ThreadHub hub(2, {});
  std::thread([&] {
    const PooledStreamGuard stream(kDevice);
    hub.transport(RankId(0))->start_send(RankId(1), fake_tensor(), {})->wait();
  }).join();
  std::thread([&] {
    const PooledStreamGuard stream(kDevice);
    const auto transport = hub.transport(RankId(1));
    static_cast<void>(transport->post_receive(RankId(0), {.sizes = {1}, .dtype = at::kFloat}, {})->wait());
  }).join();
  EXPECT_THAT(FakeDevice::get().lines(),
              ElementsAre("stream 1 records event 1", "stream 2 awaits event 1", "memory is kept for stream 2"));
}

TEST_F(StreamTest, RestoresTheThreadsStream) {
  {
    const PooledStreamGuard stream(kDevice);
    EXPECT_EQ(current_fake_stream(), 1);
  }
  EXPECT_EQ(current_fake_stream(), 0);
}

TEST_F(StreamTest, RankStreamIsOrderedWithTheCallersStream) {
  const SideStream stream(kDevice);
  for (int step = 0; step < 2; ++step) {
    const StreamMark begin(kDevice);
    const StreamMark end = stream.run(begin, [] { EXPECT_EQ(current_fake_stream(), 1); });
    end.await();
    EXPECT_EQ(current_fake_stream(), 0);
  }
  EXPECT_THAT(FakeDevice::get().lines(),
              ElementsAre("stream 0 records event 1", "stream 1 awaits event 1", "stream 1 records event 2",
                          "stream 0 awaits event 2", "stream 0 records event 3", "stream 1 awaits event 3",
                          "stream 1 records event 4", "stream 0 awaits event 4"));
}

TEST_F(StreamTest, TimesOfWorkAreReadWithoutAWait) {
  double seconds = -1;
  TimedWork work;
  work.note(TimeMark(kDevice), kDevice, [&](double own) { seconds = own; });
  EXPECT_THROW(work.read(), std::logic_error) << "the host has not waited";
  await_device(kDevice);
  FakeDevice::get().answer_late();
  work.read();
  EXPECT_GE(seconds, 0);
  EXPECT_THAT(FakeDevice::get().waits(), ElementsAre("for all work"));
  seconds = -1;
  work.read();
  EXPECT_EQ(seconds, -1) << "read once";
  work.note(TimeMark(at::kCPU), at::kCPU, [&](double own) { seconds = own; });
  EXPECT_GE(seconds, 0) << "at once on the CPU";
}

TEST_F(StreamTest, DoesNothingOnTheCpu) {
  bool has_run = false;
  SideStream(at::kCPU).run(StreamMark(at::kCPU), [&] { has_run = true; }).await();
  EXPECT_TRUE(has_run);
  const PooledStreamGuard stream(at::kCPU);
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(Handover(tensor).take().is_same(tensor));
  EXPECT_FALSE(Handover().take().defined());
  EXPECT_THAT(FakeDevice::get().lines(), ElementsAre());
}

}  // namespace
}  // namespace chimera
