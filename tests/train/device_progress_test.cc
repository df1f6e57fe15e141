// Progress of a rank whose device lags behind its host.

#include "train/observe/device_progress.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "launch/local/rank.h"
#include "support/fake_device.h"

namespace chimera {
namespace {

using testing::FakeDevice;

RankProgress step(std::int64_t number) { return {.phase = RankProgress::Phase::Steps, .step = number}; }

class DeviceProgressTest : public ::testing::Test {
 protected:
  DeviceProgressTest() {
    FakeDevice::get().clear();
    note_progress_on(&page_, 0);
  }
  ~DeviceProgressTest() override { note_progress_on(nullptr, 0); }

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
  DeviceProgress progress(at::Device(testing::kFakeDevice, 0));
  for (std::int64_t number = 1; number <= 3; ++number) progress.note(step(number));
  EXPECT_EQ(page_.count(0), 0U);
  EXPECT_EQ(progress.behind(), 3U);
  FakeDevice::get().finish_events_up_to(2);
  progress.note(step(4));
  EXPECT_EQ(page_.count(0), 2U);
  EXPECT_EQ(page_.last(0).step, 2);
}

TEST_F(DeviceProgressTest, DeviceProgressIsVisibleWhileTheHostWaits) {
  FakeDevice::get().finish_events_up_to(0);
  std::promise<void> all_noted;
  auto rank = std::async(std::launch::async, [&] {
    note_progress_on(&page_, 0);
    DeviceProgress progress(at::Device(testing::kFakeDevice, 0));
    for (std::int64_t number = 1; number <= 3; ++number) progress.note(step(number));
    all_noted.set_value();
    progress.catch_up();
    note_progress_on(nullptr, 0);
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

}  // namespace
}  // namespace chimera
