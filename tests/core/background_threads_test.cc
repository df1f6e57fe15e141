#include "core/signals.h"

#include <gtest/gtest.h>

#include <thread>

namespace chimera {
namespace {

int policy_of_new_thread() {
  int policy = -1;
  std::thread([&] { policy = ::sched_getscheduler(0); }).join();
  return policy;
}

TEST(BackgroundThreadsTest, BackgroundThreadsTakeNoCoreFromComputeThreads) {
  {
    const BackgroundThreads background;
    EXPECT_EQ(policy_of_new_thread(), SCHED_BATCH);
  }
  EXPECT_EQ(policy_of_new_thread(), SCHED_OTHER);
}

TEST(BackgroundThreadsTest, KeepsAnotherSchedulingPolicy) {
  int meanwhile = -1;
  int afterwards = -1;
  std::thread([&] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
    {
      const BackgroundThreads background;
      meanwhile = policy_of_new_thread();
    }
    afterwards = policy_of_new_thread();
  }).join();
  EXPECT_EQ(meanwhile, SCHED_IDLE);
  EXPECT_EQ(afterwards, SCHED_IDLE);
}

}  // namespace
}  // namespace chimera
