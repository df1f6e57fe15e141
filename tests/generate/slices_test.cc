// Slices in the schedules with replicas or split backward: bounds and activations of docs/slices.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "check/check_schedule.h"
#include "generate/sliced_units.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

PipelineShape sliced(std::int64_t stages, std::int64_t micro_batches, std::int64_t slices, std::int64_t pipelines = 2) {
  return {.stages = stages, .micro_batches = micro_batches, .pipelines = pipelines, .slices = slices};
}

/// The lower bound for F + B = 3 if a worker's first op waits for (D/2f - 1)/k times `wait`.
double slices_bound(const PipelineShape& shape, double wait) {
  return 3 * static_cast<double>(shape.micro_batches) + wait * static_cast<double>(shape.stages / shape.pipelines - 1) /
                                                            static_cast<double>(shape.slices * shape.chunks);
}

/// Shapes with D to `most_stages`, N from D to 2D + 3, all 2f that divide D, and k from `least` of 2, 3, 4, 5 and 8.
std::vector<PipelineShape> sliced_shapes(const char* name, std::int64_t most_stages, std::int64_t least = 2) {
  std::vector<PipelineShape> shapes;
  for (std::int64_t d = 2; d <= most_stages; d += 2) {
    for (std::int64_t pipelines = 2; pipelines <= d; pipelines += 2) {
      for (const std::int64_t k : {2, 3, 4, 5, 8}) {
        for (std::int64_t n = d; k >= least && n <= 2 * d + 3; ++n) shapes.push_back(sliced(d, n, k, pipelines));
      }
    }
  }
  std::erase_if(shapes,
                [&](const PipelineShape& shape) { return find_generator(name).find_shape_error(shape).has_value(); });
  return shapes;
}

TEST(SlicesTest, UnitsOfChimeraZbReachTheProvedFigures) {
  for (PipelineShape shape : sliced_shapes("chimera-zb", 10)) {
    for (const std::int64_t chunks : {1, 2}) {
      shape.chunks = chunks;
      if (!has_sliced_units(shape)) continue;
      const Schedule schedule = chimera_zb(shape);
      ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-zb", shape);
      const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1});
      EXPECT_NEAR(timeline.makespan, slices_bound(shape, 1), 1e-9) << testing::describe("chimera-zb", shape);
      EXPECT_NEAR(timeline.lower_bound, timeline.makespan, 1e-9) << testing::describe("chimera-zb", shape);
      EXPECT_EQ(testing::most_in_flight(timeline), sliced_credits(shape)) << testing::describe("chimera-zb", shape);
    }
  }
}

TEST(SlicesTest, OtherShapesOfChimeraZbReachTheBoundWithOneMicroBatchMore) {
  for (const PipelineShape& shape : sliced_shapes("chimera-zb", 8, 4)) {
    if (has_sliced_units(shape)) continue;
    const Schedule schedule = chimera_zb(shape);
    ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-zb", shape);
    const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1});
    EXPECT_NEAR(timeline.makespan, slices_bound(shape, 1), 1e-9) << testing::describe("chimera-zb", shape);
    EXPECT_LE(testing::most_in_flight(timeline), sliced_credits(shape) + shape.slices)
        << testing::describe("chimera-zb", shape);
  }
}

TEST(SlicesTest, OneSliceIsChimeraZbWithoutSlices) {
  for (std::int64_t d = 2; d <= 12; d += 2) {
    for (const std::int64_t units : {1, 2, 3}) {
      const PipelineShape shape = sliced(d, units * d, 1);
      EXPECT_EQ(sliced_units(shape).workers, chimera_zb(shape).workers) << d;
    }
  }
}

TEST(SlicesTest, SixteenStagesTakeFortyEightAndSevenEighths) {
  const Schedule schedule = chimera_zb(sliced(16, 16, 8));
  const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1});
  EXPECT_EQ(timeline.makespan, 48.875);
  EXPECT_EQ(testing::most_in_flight(timeline), 30);  // 3.75 micro-batches
}

TEST(SlicesTest, RotatedReplicasReachTheBoundWithWholeBackwards) {
  for (const PipelineShape& shape : sliced_shapes("chimera-rotated", 8, 4)) {
    const Schedule schedule = chimera_rotated(shape);
    ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-rotated", shape);
    const Timeline timeline = testing::timed(schedule, 1, 2);
    EXPECT_NEAR(timeline.makespan, slices_bound(shape, 3), 1e-9) << testing::describe("chimera-rotated", shape);
    EXPECT_LE(testing::most_in_flight(timeline), sliced_credits(shape) + std::max(shape.stages, shape.slices))
        << testing::describe("chimera-rotated", shape);
  }
}

TEST(SlicesTest, ChimeraIsNearTheBoundWithWholeBackwards) {
  for (const PipelineShape& shape : sliced_shapes("chimera", 8, 4)) {
    const Schedule schedule = chimera(shape);
    ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera", shape);
    const Timeline timeline = testing::timed(schedule, 1, 2);
    EXPECT_LE(timeline.makespan, 1.04 * slices_bound(shape, 3)) << testing::describe("chimera", shape);
    EXPECT_LE(testing::most_in_flight(timeline), sliced_credits(shape) + std::max(2 * shape.stages, shape.slices))
        << testing::describe("chimera", shape);
  }
}

TEST(SlicesTest, ZbH1LosesAKthOfItsBubble) {
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (const std::int64_t k : {2, 3, 4, 8}) {
      for (std::int64_t n = d; n <= 2 * d + 3; ++n) {
        const PipelineShape shape = sliced(d, n, k);
        const Schedule schedule = zb_h1(shape);
        ASSERT_TRUE(check(schedule).empty()) << testing::describe("zb-h1", shape);
        const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1.3, 0.7});
        EXPECT_NEAR(timeline.makespan, 3 * static_cast<double>(n) + 1.6 * static_cast<double>(d - 1) / k, 1e-9)
            << testing::describe("zb-h1", shape);
        EXPECT_EQ(testing::most_in_flight(timeline), d - 1 + k) << testing::describe("zb-h1", shape);
      }
    }
  }
}

TEST(SlicesTest, FewMicroBatchesAreLegal) {
  for (const char* name : {"chimera", "chimera-rotated", "chimera-zb", "zb-h1"}) {
    for (std::int64_t n = 1; n < 8; ++n)
      EXPECT_TRUE(check(find_generator(name).generate(sliced(8, n, 4))).empty()) << name << ", N=" << n;
  }
}

/// Checks rows of the document's table: | D | N | 2f | k | chimera-zb | held | k = 1 | chimera-rotated | held | zb-h1 |
/// held | 1f1b |
TEST(SlicesTest, DocumentedFiguresAreCorrect) {
  std::ifstream document(testing::source_path("/docs/slices.md"));
  int rows = 0;
  for (std::string line; std::getline(document, line);) {
    if (std::ranges::count(line, '|') != 13) continue;
    std::ranges::replace(line, '|', ' ');
    std::istringstream cells(line);
    PipelineShape shape{.order = OpOrder::Slots};
    if (!(cells >> shape.stages >> shape.micro_batches >> shape.pipelines >> shape.slices)) continue;
    ++rows;
    const auto check_next = [&](const char* name, bool has_held) {
      double makespan = 0;
      double held = 0;
      cells >> makespan;
      const Schedule schedule = find_generator(name).generate(shape);
      const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1});
      EXPECT_DOUBLE_EQ(timeline.makespan, makespan) << line << name;
      if (!has_held) return;
      cells >> held;
      EXPECT_DOUBLE_EQ(static_cast<double>(testing::most_in_flight(timeline)), held * static_cast<double>(shape.slices))
          << line << name;
    };
    check_next("chimera-zb", true);
    const std::int64_t slices = std::exchange(shape.slices, 1);
    check_next("chimera-zb", false);
    shape.slices = slices;
    check_next("chimera-rotated", true);
    check_next("zb-h1", true);
    check_next("1f1b", false);
  }
  EXPECT_GE(rows, 8);
}

TEST(SlicesTest, DeepestHidesShortMessages) {
  for (const std::int64_t k : {2, 4, 8}) {
    PipelineShape shape = sliced(8, 16, k);
    shape.order = OpOrder::Deepest;
    const Schedule schedule = chimera_zb(shape);
    ASSERT_TRUE(check(schedule).empty()) << k;
    for (const double latency : {0.0, 0.05, 0.1}) {
      const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1}, latency);
      EXPECT_NEAR(timeline.makespan, slices_bound(shape, 1) + 3 * latency, 1e-9) << k << ", latency " << latency;
    }
    EXPECT_LE(testing::most_in_flight(testing::timed(schedule, SplitCosts{1, 1, 1})), sliced_credits(shape) + 16) << k;
  }
}

TEST(SlicesTest, ScalesWithoutSlicesAreRefused) {
  PipelineShape shape = sliced(4, 8, 2);
  shape.scale = ScaleMethod::Doubling;
  EXPECT_EQ(find_generator("chimera").find_shape_error(shape), "--slices needs --scale direct");
}

}  // namespace
}  // namespace chimera
