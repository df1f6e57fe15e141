#include "profile/host_bench.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "profile/profiler.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

/// Calls `body` as each of so many ranks; returns what they did.
template <class Body>
std::vector<double> as_ranks(int count, const Body& body) {
  ThreadHub hub(count, profile_groups());
  std::vector<double> results(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      const auto transport = hub.transport(WorkerId(r));
      Lockstep ranks(*transport, r, /*computing=*/2);
      results[static_cast<std::size_t>(r)] = body(ranks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(HostBenchTest, RanksBeyondThePairTakeNoPartInItsSums) {
  const auto overhead = as_ranks(3, [](Lockstep& ranks) { return measure_op_overhead(ranks, StageId(2), 0.01); });
  EXPECT_GT(overhead[0], 0);
  EXPECT_LT(overhead[0], 0.1);
  EXPECT_EQ(overhead[0], overhead[2]) << "all know it";
}

TEST(LinkBenchTest, BusyRanksDelayNoMessageByLessThanNothing) {
  const auto delay = as_ranks(4, [](Lockstep& ranks) { return measure_busy_delay(ranks, 0.01); });
  EXPECT_GE(delay[0], 0);
  EXPECT_LT(delay[0], 1);
}

}  // namespace
}  // namespace chimera
