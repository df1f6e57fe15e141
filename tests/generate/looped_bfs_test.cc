#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "schedule/schedule_csv.h"
#include "support/generators.h"
#include "support/paths.h"
#include "support/schedules.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

PipelineShape looped_shape(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
  return {.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
}

TEST(LoopedBfsTest, EachStageIsVisitedOnceForwardAndOnceBackward) {
  EXPECT_THAT(testing::orders(looped_bfs(looped_shape(1, 2, 3))), ElementsAre("F0 F1 F0 F1 F0 F1 B0 B1 B0 B1 B0 B1"));
  EXPECT_EQ(testing::orders(looped_bfs(looped_shape(3, 4, 1))),
            testing::orders(find_generator("gpipe").generate({3, 4})));
}

TEST(LoopedBfsTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& asked : testing::small_shapes("looped-bfs", 8)) {
    const auto [d, n, v] = std::tuple(asked.stages, asked.micro_batches, asked.chunks);
    const auto passes = static_cast<double>((v - 1) * std::max(n, d) + n + d - 1);
    for (const double b : {0.5, 1.0, 2.0, 3.5}) {
      const Timeline timeline = testing::timed(looped_bfs(asked), 1, b);
      EXPECT_NEAR(timeline.makespan, passes * (1 + b) / static_cast<double>(v), 1e-9)
          << testing::describe("looped-bfs", asked) << " B=" << b;
      for (const auto& worker : timeline.workers) EXPECT_EQ(worker.peak_in_flight, n * v);
    }
  }
}

TEST(LoopedBfsTest, EqualsPyTorchWithBackwardsInSampleOrder) {
  const std::string file = testing::source_path("/tests/fixtures/torch_csv/looped_bfs.csv");
  Schedule theirs = schedule_from_csv(testing::read_file(file), file).schedule;
  for (auto& ops : theirs.workers) {
    for (auto run = ops.begin(); run != ops.end();) {
      const auto end =
          std::find_if(run, ops.end(), [&](const Op& op) { return op.stage != run->stage || op.kind != run->kind; });
      if (run->kind == OpKind::Backward) std::reverse(run, end);
      run = end;
    }
  }
  theirs.name = "looped-bfs";
  EXPECT_EQ(looped_bfs(looped_shape(4, 8, 2)), theirs);
}

TEST(LoopedBfsTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)looped_bfs(looped_shape(0, 4, 2)), ConfigError);
  EXPECT_THROW((void)looped_bfs(looped_shape(4, 0, 2)), ConfigError);
  EXPECT_THROW((void)looped_bfs(looped_shape(4, 4, 0)), ConfigError);
  EXPECT_THROW((void)looped_bfs(looped_shape(4, 4, 1'000'000'000'000)), ConfigError);
}

}  // namespace
}  // namespace chimera
