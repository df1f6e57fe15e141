// Samples of unequal work: which micro-batch and which place of the schedule they get.

#include "engine/dealing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "simulate/permute.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RunShape dealt_run(const std::string& schedule, const PipelineShape& shape, std::int64_t size,
                   std::int64_t groups = 1) {
  return run_shape({.schedule = {.name = schedule, .shape = shape}, .data_parallel = groups, .micro_batch_size = size});
}

/// One long document in the first samples of the step.
std::vector<double> long_first(const RunShape& run) {
  std::vector<double> work(static_cast<std::size_t>(run.mini_batch()), 1);
  for (std::size_t i = 0; i < work.size() / 8; ++i) work[i] = 5 - static_cast<double>(i) / 8;
  return work;
}

TEST(DealingTest, SamplesAreDealtLargestFirst) {
  const RunShape run = dealt_run("1f1b", {2, 3}, 2);
  EXPECT_THAT(deal_step(run, {5, 4, 3, 1, 1, 1}, false).sample_of, ElementsAre(0, 5, 1, 4, 2, 3));
}

TEST(DealingTest, LayoutsDealAlike) {
  const RunShape run = dealt_run("chimera", {4, 8}, 2, 2);
  const RunShape other = dealt_run("none", {1, 16}, 2);
  EXPECT_EQ(deal_step(run, long_first(run), true).sample_of, deal_step(other, long_first(run), true).sample_of);
}

TEST(DealingTest, EqualWorkStaysInOrder) {
  const RunShape run = dealt_run("chimera", {4, 8}, 2);
  const DealtStep dealt = deal_step(run, std::vector<double>(16, 2.5), true);
  EXPECT_THAT(dealt.sample_of, IsEmpty());
  EXPECT_THAT(dealt.micro_batch_at, IsEmpty());
}

TEST(DealingTest, HeavyMicroBatchesChangePlacesInAllGroups) {
  for (const std::string name : {"1f1b", "chimera-zb"}) {
    for (const std::int64_t groups : {1, 2}) {
      SCOPED_TRACE(name + " in " + std::to_string(groups) + " groups");
      const RunShape run = dealt_run(name, {4, 8}, 1, groups);
      const std::vector<double> work = long_first(run);
      const DealtStep dealt = deal_step(run, work, true);
      std::vector<std::int64_t> sorted = dealt.micro_batch_at;
      std::ranges::sort(sorted);
      for (std::size_t i = 0; i < work.size(); ++i) ASSERT_EQ(sorted.at(i), static_cast<std::int64_t>(i));
      double slowest = 0;  // Group, with the samples that each of its micro-batches gets
      double in_order = 0;
      for (GroupId group(0); group.value() < groups; group = GroupId(group.value() + 1)) {
        CostModel costs = CostModel::uniform(run.schedule, {1, 2, 1, 1});
        CostModel kept = costs;
        for (std::int64_t m = 0; m < run.schedule.micro_batches; ++m) {
          const std::int64_t first = run.first_sample(group, MicroBatchId(m));
          const std::int64_t sample = dealt.sample(dealt.first_dealt(first, run.samples_per_op()));
          costs.micro_batches.push_back(work.at(static_cast<std::size_t>(sample)));
          kept.micro_batches.push_back(work.at(static_cast<std::size_t>(first)));
        }
        slowest = std::max(slowest, simulate(run.schedule, costs).makespan);
        in_order = std::max(in_order, simulate(run.schedule, kept).makespan);
      }
      EXPECT_LT(slowest, in_order);
    }
  }
}

}  // namespace
}  // namespace chimera
