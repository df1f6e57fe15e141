#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include "core/file_descriptor.h"
#include "measuring/run_memory.h"
#include "support/training.h"
#include "transport/gloo/gloo_transport.h"

namespace chimera {
namespace {

using benchmarks::Sizes;
using benchmarks::WorkerMemory;

/// Ranks are threads that exchange tensors over Gloo, as processes do, so each has its own memory.
std::vector<WorkerMemory> compare(const std::string& schedule, const std::string& recompute,
                                  Sizes sizes = Sizes::Measured) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, {4, 8, 2});
  options.model.overrides = {.layers = 4, .hidden = 64, .heads = 2};
  options.data.sequence = 64;
  options.memory.recompute = parse_stages(kRecomputeFlag, recompute);
  options.updates.steps = 2;
  const Job job = prepare_job(options);
  const FileDescriptor store(check_system(::memfd_create("store", MFD_CLOEXEC), "create the store"));
  std::vector<WorkerMemory> workers;
  const auto run_rank = [&](RankId rank) {
    at::set_num_threads(1);
    const auto transport = connect_gloo({.rank = static_cast<int>(rank.value()),
                                         .world_size = 4,
                                         .rendezvous = file_rendezvous("/proc/self/fd/" + std::to_string(store.get())),
                                         .groups = job.run.rank_groups()});
    auto compared = benchmarks::compare_memory(job, rank, *transport, sizes);
    if (rank == RankId(0)) workers = std::move(compared);
  };
  EXPECT_FALSE(RankThreads(4).run(4, run_rank, [](const std::string& why) { ADD_FAILURE() << why; }));
  return workers;
}

void expect_close(const std::vector<WorkerMemory>& workers, const std::string& what) {
  ASSERT_EQ(workers.size(), 4U);
  for (std::size_t w = 0; w < workers.size(); ++w) {
    // The number of messages in flight depends on timing, which differs between a busy machine and its simulation.
    constexpr double kTolerance = 0.05;
    EXPECT_LE(workers[w].largest_deviation(), kTolerance) << what << ", worker " << w;
    EXPECT_NEAR(workers[w].measured_peak() / workers[w].simulated_peak(), 1, kTolerance) << what << ", worker " << w;
    EXPECT_GT(workers[w].measured_peak(), workers[w].kept) << what << ", worker " << w;
  }
}

TEST(MemoryTimelineTest, BytesOverTimeMatchTheSimulator) {
  for (const char* schedule : {"gpipe", "chimera", "chimera-zb"}) expect_close(compare(schedule, "none"), schedule);
}

TEST(MemoryTimelineTest, MatchTheSimulatorWithDerivedSizes) {
  for (const char* schedule : {"gpipe", "chimera-zb"})
    expect_close(compare(schedule, "none", Sizes::Derived), schedule);
}

TEST(MemoryTimelineTest, MatchTheSimulatorWithRecomputation) { expect_close(compare("chimera", "full"), "chimera"); }

}  // namespace
}  // namespace chimera
