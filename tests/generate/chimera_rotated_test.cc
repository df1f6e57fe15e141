#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

PipelineShape rotated_shape(std::int64_t stages, std::int64_t micro_batches, std::int64_t pipelines = 2) {
  return {.stages = stages, .micro_batches = micro_batches, .pipelines = pipelines};
}

double ideal(const PipelineShape& asked, double backward) {
  const std::int64_t ops = asked.micro_batches + asked.stages / asked.pipelines - 1;
  return static_cast<double>(ops) * (1 + backward);
}

std::int64_t room(const PipelineShape& asked) { return asked.stages + asked.stages / asked.pipelines; }

TEST(ChimeraRotatedTest, TheSecondReplicaBeginsHalfwayDown) {
  const Schedule schedule = chimera_rotated(rotated_shape(4, 4));
  EXPECT_THAT(schedule.placement.worker_of[0], ElementsAre(WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)));
  EXPECT_THAT(schedule.placement.worker_of[1], ElementsAre(WorkerId(2), WorkerId(3), WorkerId(0), WorkerId(1)));
  EXPECT_EQ(testing::orders(schedule)[0], "F0 F2 F1 F3 B1 B3 B0 B2");
}

// The header proves it: no worker waits between its first and last forward, nor between its backwards.
TEST(ChimeraRotatedTest, LosesOnlyTheFirstWorkersWaitAtAnyBackwardCost) {
  for (const std::int64_t pipelines : {2, 3, 4, 8}) {
    for (std::int64_t stages = pipelines; stages <= 24; stages += pipelines) {
      const PipelineShape asked = rotated_shape(stages, stages, pipelines);
      for (const double b : {0.5, 1.0, 2.0, 3.5})
        EXPECT_NEAR(testing::timed(chimera_rotated(asked), 1, b).makespan, ideal(asked, b), 1e-9)
            << testing::describe("chimera-rotated", asked) << " B=" << b;
    }
  }
}

TEST(ChimeraRotatedTest, IsNeverSlowerThanChimeraAtNEqualsD) {
  for (std::int64_t stages = 2; stages <= 32; stages += 2) {
    for (const double b : {1.0, 1.5, 2.0, 3.0}) {
      const double reversed = testing::timed(chimera(rotated_shape(stages, stages)), 1, b).makespan;
      const double lost = static_cast<double>(stages / 2 - 1) * (b - 1);
      EXPECT_NEAR(testing::timed(chimera_rotated(rotated_shape(stages, stages)), 1, b).makespan, reversed - lost, 1e-9)
          << stages;
    }
  }
}

TEST(ChimeraRotatedTest, KeepsItsMemoryLimitAndIsNearTheIdeal) {
  for (const PipelineShape& asked : testing::small_shapes("chimera-rotated", 8)) {
    if (asked.slices > 1) continue;
    const Timeline timeline = testing::timed(chimera_rotated(asked), 1, 2);
    for (const auto& worker : timeline.workers)
      EXPECT_LE(worker.peak_in_flight, std::min(asked.micro_batches, room(asked)))
          << testing::describe("chimera-rotated", asked);
  }
  for (const std::int64_t stages : {4, 8, 16}) {
    for (const std::int64_t units : {2, 3, 4, 8}) {
      const PipelineShape asked = rotated_shape(stages, units * stages);
      EXPECT_LE(testing::timed(chimera_rotated(asked), 1, 2).makespan, 1.06 * ideal(asked, 2))
          << stages << ", " << units;
    }
  }
}

}  // namespace
}  // namespace chimera
