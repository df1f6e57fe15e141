// Chimera with v chunks per worker; v = 2 is BitPipe.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "render/panel.h"
#include "render/text.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

PipelineShape chunked(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks,
                      std::int64_t pipelines = 2) {
  return {.stages = stages, .micro_batches = micro_batches, .pipelines = pipelines, .chunks = chunks};
}

TEST(ChimeraChunksTest, OrdersAtDepthFourEqualBitPipe) {
  EXPECT_THAT(testing::ops(chimera(chunked(4, 4, 2))),
              ElementsAre("0F0 0F1 3F2 4F2 3F3 4F3 7F0 7B0 7F1 7B1 4B2 3B2 4B3 3B3 0B0 0B1",
                          "1F0 2F2 1F1 2F3 5F2 6F0 5F3 6F1 6B0 5B2 6B1 5B3 2B2 1B0 2B3 1B1",
                          "1F2 2F0 1F3 2F1 5F0 6F2 5F1 6F3 6B2 5B0 6B3 5B1 2B0 1B2 2B1 1B3",
                          "0F2 0F3 3F0 4F0 3F1 4F1 7F2 7B2 7F3 7B3 4B0 3B0 4B1 3B1 0B2 0B3"));
}

TEST(ChimeraChunksTest, AWorkerAndItsMirrorHoldTheSameStages) {
  for (const std::int64_t depth : {2, 4, 6, 8}) {
    const Schedule schedule = chimera(chunked(depth, depth, 2));
    for (const auto& group : stage_groups(schedule.placement)) {
      ASSERT_EQ(group.size(), 2U);
      EXPECT_EQ(group[0].value() + group[1].value(), depth - 1);
    }
  }
}

TEST(ChimeraChunksTest, MakespanIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 12; depth += 2) {
    for (const std::int64_t f : {1, 2, 3, 4, 6}) {
      if ((depth / 2) % f != 0) continue;
      for (std::int64_t v = 1; v <= 3; ++v) {
        for (std::int64_t units = 1; units <= 3; ++units) {
          for (const double b : {1.0, 1.5, 2.0, 3.0}) {
            const double bubble = static_cast<double>(depth / f - 2) * (b + static_cast<double>(units - 1) * (b - 1)) /
                                  static_cast<double>(v);
            const PipelineShape shape = chunked(depth, units * depth, v, 2 * f);
            EXPECT_NEAR(testing::timed(chimera(shape), 1, b).makespan,
                        static_cast<double>(units * depth) * (1 + b) + bubble, 1e-9)
                << testing::describe("chimera", shape) << " B=" << b;
          }
        }
      }
    }
  }
}

TEST(ChimeraChunksTest, ActivationsAreTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 12; depth += 2) {
    for (std::int64_t v = 1; v <= 4; ++v) {
      for (std::int64_t units = 1; units <= 3; ++units) {
        const Timeline timeline = testing::timed(chimera(chunked(depth, units * depth, v)), 1, 2);
        for (std::int64_t w = 0; w < depth; ++w) {
          EXPECT_EQ(timeline.workers[static_cast<std::size_t>(w)].peak_in_flight,
                    v * depth - depth / 2 + std::min(w, depth - 1 - w) + 1)
              << testing::describe("chimera", chunked(depth, units * depth, v)) << " worker " << w;
        }
      }
    }
  }
}

/// The proof that the slots of doubling are free of conflicts for one chunk also holds for v chunks.
TEST(ChimeraChunksTest, DoublingLosesAVthOfItsBubble) {
  for (std::int64_t depth = 2; depth <= 8; depth += 2) {
    for (std::int64_t v = 1; v <= 3; ++v) {
      for (std::int64_t units = 1; units <= 2; ++units) {
        PipelineShape shape = chunked(depth, 2 * units * depth, v);
        shape.scale = ScaleMethod::Doubling;
        for (const double b : {1.0, 1.5, 2.0}) {
          const double passes =
              static_cast<double>(shape.micro_batches) + static_cast<double>(depth / 2 - 1) / static_cast<double>(v);
          EXPECT_NEAR(testing::timed(chimera(shape), 1, b).makespan, passes * (1 + b), 1e-9)
              << testing::describe("chimera", shape) << " B=" << b;
        }
      }
    }
  }
}

TEST(ChimeraChunksTest, FigureIsTheGoldenFile) {
  const Schedule schedule = chimera(chunked(4, 4, 2));
  EXPECT_EQ(to_text(schedule, slot_timeline(schedule)), testing::golden("chimera-chunks.txt"));
}

}  // namespace
}  // namespace chimera
