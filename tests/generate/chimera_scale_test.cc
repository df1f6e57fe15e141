// Chimera with more micro-batches than stages by forward doubling and backward halving. Orders are from the paper's
// artifact.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;

PipelineShape doubling(std::int64_t depth, std::int64_t micro_batches, std::int64_t pipelines = 2) {
  return {.stages = depth, .micro_batches = micro_batches, .pipelines = pipelines, .scale = ScaleMethod::Doubling};
}

PipelineShape halving(std::int64_t depth, std::int64_t micro_batches, std::int64_t pipelines = 2) {
  return {.stages = depth, .micro_batches = micro_batches, .pipelines = pipelines, .scale = ScaleMethod::Halving};
}

double scaled_makespan(const PipelineShape& shape, double forward, double backward) {
  return testing::timed(chimera(shape), forward, backward).makespan;
}

TEST(ChimeraDoublingTest, TwoUnitsAreTheArtifactsOrder) {
  EXPECT_THAT(testing::orders(chimera(doubling(4, 8))), ElementsAre("F0 F1 F4 F5 F2 F3 B2 F6 F7 B3 B0 B6 B1 B7 B4 B5",
                                                                    "F0 F1 F2 F3 F4 F5 F6 F7 B2 B0 B3 B1 B6 B4 B7 B5",
                                                                    "F2 F3 F0 F1 F6 F7 F4 F5 B0 B2 B1 B3 B4 B6 B5 B7",
                                                                    "F2 F3 F6 F7 F0 F1 B0 F4 F5 B1 B2 B4 B3 B5 B6 B7"));
}

TEST(ChimeraDoublingTest, SlotOrderIsThePerWorkerRuleAndAnOddUnitComesLast) {
  for (std::int64_t depth = 2; depth <= 24; depth += 2) {
    for (std::int64_t units = 1; units <= 5; ++units) {
      const auto rows = testing::orders(chimera(doubling(depth, units * depth)));
      for (std::int64_t w = 0; w < depth; ++w)
        EXPECT_EQ(rows[static_cast<std::size_t>(w)], testing::chimera_rule(depth, units, w, 2))
            << "D=" << depth << " K=" << units;
    }
  }
}

/// (F, B) with F <= B <= 3F: the closed forms hold.
constexpr std::array kScaleCosts = {std::pair{1, 1}, std::pair{1, 2}, std::pair{1, 3}, std::pair{2, 3},
                                    std::pair{3, 4}};

/// (N + D/2f - 1)(F + B). If a backward takes longer than two forwards, each unit after the first adds (D/f - 2)(B -
/// 2F).
double doubled_makespan(std::int64_t depth, std::int64_t doubled_units, std::int64_t f, int forward, int backward) {
  const double work = static_cast<double>(2 * doubled_units * depth * (forward + backward));
  const double ends = static_cast<double>((depth / f / 2 - 1) * (forward + backward));
  const double between = static_cast<double>((doubled_units - 1) * (depth / f - 2) * (backward - 2 * forward));
  return work + ends + std::max(0.0, between);
}

TEST(ChimeraDoublingTest, MakespanIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 16; depth += 2) {
    for (std::int64_t units = 1; units <= 4; ++units) {
      for (std::int64_t f = 1; f <= depth / 2; ++f) {
        if ((depth / 2) % f != 0) continue;
        for (const auto& [forward, backward] : kScaleCosts) {
          EXPECT_EQ(scaled_makespan(doubling(depth, 2 * units * depth, 2 * f), forward, backward),
                    doubled_makespan(depth, units, f, forward, backward))
              << "D=" << depth << " K2=" << units << " f=" << f << " F=" << forward << " B=" << backward;
        }
      }
    }
  }
}

TEST(ChimeraDoublingTest, HoldsDepthMoreActivations) {
  for (std::int64_t depth = 2; depth <= 16; depth += 2) {
    for (std::int64_t units = 1; units <= 3; ++units) {
      const Timeline timeline = testing::timed(chimera(doubling(depth, 2 * units * depth)), 1, 2);
      for (std::int64_t w = 0; w < depth; ++w)
        EXPECT_EQ(timeline.workers[static_cast<std::size_t>(w)].peak_in_flight,
                  3 * depth / 2 + 1 + std::min(w, depth - 1 - w));
    }
  }
}

TEST(ChimeraDoublingTest, BubbleRatioOfThePaper) {
  EXPECT_DOUBLE_EQ(testing::timed(chimera(doubling(4, 8)), 1, 2).bubble_ratio, 2.0 / 18);
}

TEST(ChimeraDoublingTest, UpToDepthMicroBatchesAreThePlainUnit) {
  for (std::int64_t n = 1; n <= 8; ++n) EXPECT_EQ(chimera(doubling(8, n)), chimera({8, n}));
}

TEST(ChimeraDoublingTest, AnyNumberOfMicroBatchesIsNoSlowerThanDirect) {
  for (const std::int64_t depth : {4, 8, 12}) {
    for (const std::int64_t pipelines : {2, 4}) {
      for (std::int64_t n = depth + 1; depth % pipelines == 0 && n <= 4 * depth; ++n) {
        for (const double b : {1.0, 2.0, 3.0})
          EXPECT_LE(scaled_makespan(doubling(depth, n, pipelines), 1, b), scaled_makespan({depth, n, pipelines}, 1, b))
              << "D=" << depth << " N=" << n << " 2f=" << pipelines << " B=" << b;
      }
    }
  }
}

TEST(ChimeraDoublingTest, ARestOfMoreThanDepthIsASmallerDoubledUnit) {
  EXPECT_THAT(testing::orders(chimera(doubling(4, 6))),
              ElementsAre("F0 F1 F4 F2 F3 B2 F5 B3 B0 B5 B1 B4", "F0 F1 F2 F3 F4 F5 B2 B0 B3 B1 B5 B4",
                          "F2 F3 F0 F1 F5 F4 B0 B2 B1 B3 B4 B5", "F2 F3 F5 F0 F1 B0 F4 B1 B2 B4 B3 B5"));
}

TEST(ChimeraHalvingTest, IsTheOrderOfDoublingOnTwiceAsManyHalves) {
  for (const std::int64_t pipelines : {2, 4}) {
    for (std::int64_t n = 1; n <= 24; ++n) {
      const Schedule schedule = chimera(halving(8, n, pipelines));
      EXPECT_EQ(schedule.micro_batches, 2 * n);
      EXPECT_EQ(schedule.micro_batch_scale, 0.5);
      EXPECT_EQ(schedule.workers, chimera(doubling(8, 2 * n, pipelines)).workers);
    }
  }
}

TEST(ChimeraHalvingTest, MakespanIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 16; depth += 2) {
    for (std::int64_t units = 1; units <= 4; ++units) {
      const auto n = static_cast<double>(units * depth);
      EXPECT_EQ(scaled_makespan(halving(depth, units * depth), 1, 2), 3 * n + 0.75 * static_cast<double>(depth) - 1.5)
          << "D=" << depth << " K=" << units;
    }
  }
}

TEST(ChimeraScaleTest, ThreeMethodsComparedAtDepthEight) {
  EXPECT_EQ(scaled_makespan({8, 16}, 1, 2), 66);
  EXPECT_EQ(scaled_makespan({8, 16}, 1, 3), 94);
  EXPECT_EQ(scaled_makespan(doubling(8, 16), 1, 2), 57);
  EXPECT_EQ(scaled_makespan(doubling(8, 16), 1, 3), 76);
  EXPECT_EQ(scaled_makespan(halving(8, 16), 1, 2), 52.5);
}

}  // namespace
}  // namespace chimera
