// Makespans of schedules, most of them at D = 8, computed by an independent simulator.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "support/schedules.h"

namespace chimera {
namespace {

using testing::SplitCosts;

struct Row {
  const char* name;
  PipelineShape shape;  // N is left out
  /// N = 8, then N = 16, each: equal times without latency; equal times with latency 0.1; times 1, 1.3, 0.7 with
  /// latency 0.1. Then N = 32 with the last costs. NAN if unknown.
  std::array<double, 7> makespans;
  double peak;  // stage units
};

PipelineShape zb(OpOrder order, std::int64_t chunks, std::int64_t pipelines = 2) {
  return {.stages = 8, .pipelines = pipelines, .chunks = chunks, .order = order};
}

const std::array kRows = {
    Row{"interleaved-zb", {.stages = 8, .chunks = 2}, {27.5, 30.9, 33.0, 51.5, 55.1, 57.2, 105.2}, 8},
    Row{"interleaved-zb", {.stages = 8, .chunks = 3}, {26.33, 30.53, 31.93, 50.33, 54.73, 56.13, 104.13}, 8},
    Row{"v-half", {.stages = 8}, {NAN, NAN, NAN, 61, 64.6, 70, NAN}, 5},
    Row{"v-min", {.stages = 8}, {NAN, NAN, NAN, 61.5, 72.1, 87.45, NAN}, 4},
    Row{"chimera", {.stages = 8}, {36, 37.9, 37.9, 66, 69.1, 69.1, 131.5}, 8},
    Row{"chimera", {.stages = 8, .chunks = 2}, {30, 33.3, 33.3, 57, 63, 63, 122.4}, 8},
    Row{"chimera-zb", zb(OpOrder::Slots, 1), {27, 28.9, 31.6, 51, 54.8, 61.1, 120.1}, 8},
    Row{"chimera-zb", zb(OpOrder::Deepest, 1), {29, 29.8, 31.9, 53, 53.8, 56.2, 104.8}, 8},
    Row{"chimera-zb", zb(OpOrder::Slots, 2), {25.5, 28.8, 30.15, 49.5, 56.1, 59.25, 117.45}, 8},
    Row{"chimera-zb", zb(OpOrder::Deepest, 2), {26.5, 27.7, 28.3, 50.5, 51.7, 52.75, 101.65}, 8},
    Row{"chimera-zb", zb(OpOrder::Deepest, 2, 4), {26, 27.2, 27.4, 50, 51.8, 52.15, 101.65}, 8},
};

TEST(MakespanTableTest, EveryRowMatchesTheIndependentSimulator) {
  constexpr double kPrinted = 0.005 + 1e-9;  // last printed digit of the table
  for (Row row : kRows) {
    const auto expect = [&](std::int64_t n, const SplitCosts& costs, double latency, double makespan) {
      row.shape.micro_batches = n;
      const Timeline timeline = testing::timed(find_generator(row.name).generate(row.shape), costs, latency);
      if (!std::isnan(makespan))
        EXPECT_NEAR(timeline.makespan, makespan, kPrinted) << testing::describe(row.name, row.shape);
      double peak = 0;
      for (const auto& worker : timeline.workers) peak = std::max(peak, worker.peak_stage_units);
      EXPECT_DOUBLE_EQ(peak, row.peak) << testing::describe(row.name, row.shape);
    };
    const SplitCosts equal{1, 1, 1};
    const SplitCosts unequal{1, 1.3, 0.7};
    for (const std::size_t first : {0U, 3U}) {
      const std::int64_t n = first == 0 ? 8 : 16;
      expect(n, equal, 0, row.makespans[first]);
      expect(n, equal, 0.1, row.makespans[first + 1]);
      expect(n, unequal, 0.1, row.makespans[first + 2]);
    }
    expect(32, unequal, 0.1, row.makespans[6]);
  }
}

struct Makespan {
  const char* name;
  std::int64_t stages;
  std::int64_t micro_batches;
  SplitCosts costs;
  double latency;
  double makespan;
  double printed = 1e-9;  // Last printed digit
};

/// Values of zb-h2 at N = D are clipped: N is below 2D - 1.
constexpr SplitCosts kEqual{1, 1, 1};
constexpr SplitCosts kUnequal{1, 1.3, 0.7};
constexpr std::array kMakespans = {
    Makespan{"1f1b", 4, 4, kEqual, 0, 21},
    Makespan{"1f1b", 6, 6, kEqual, 0, 33},
    Makespan{"1f1b", 8, 8, kEqual, 0, 45},
    Makespan{"1f1b", 8, 8, kEqual, 0.1, 47.6},
    Makespan{"1f1b", 8, 8, kUnequal, 0.3, 52.8},
    Makespan{"1f1b", 8, 8, kEqual, 0.5, 58},
    Makespan{"1f1b", 8, 16, kEqual, 0, 69},
    Makespan{"1f1b", 8, 16, kUnequal, 0.1, 73},
    Makespan{"1f1b", 8, 32, kUnequal, 0.1, 123.8},
    Makespan{"chimera", 4, 4, kEqual, 0, 16},
    Makespan{"chimera", 6, 6, kEqual, 0, 26},
    Makespan{"chimera", 8, 8, kEqual, 0, 36},
    Makespan{"chimera", 8, 16, kEqual, 0, 66},
    Makespan{"zb-h1", 4, 4, kEqual, 0, 15},
    Makespan{"zb-h1", 6, 6, kEqual, 0, 23},
    Makespan{"zb-h1", 8, 8, kEqual, 0, 31},
    Makespan{"zb-h1", 8, 16, kEqual, 0, 55},
    Makespan{"zb-h1", 8, 8, kEqual, 0.1, 33.6, 0.05},
    Makespan{"zb-h1", 8, 8, kEqual, 0.3, 38.8},
    Makespan{"zb-h1", 8, 8, kEqual, 0.5, 44, 0.05},
    Makespan{"zb-h1", 8, 8, kUnequal, 0.1, 37.8},
    Makespan{"zb-h1", 8, 8, kUnequal, 0.3, 43, 0.05},
    Makespan{"zb-h1", 8, 16, kUnequal, 0.1, 62},
    Makespan{"zb-h1", 8, 32, kUnequal, 0.1, 110},
    Makespan{"zb-h2", 4, 4, kEqual, 0, 16},
    Makespan{"zb-h2", 8, 8, kEqual, 0, 34},
    Makespan{"zb-h2", 8, 16, kEqual, 0, 55},
    Makespan{"zb-h2", 8, 8, kEqual, 0.1, 35.1},
    Makespan{"zb-h2", 8, 8, kUnequal, 0.1, 36.6},
    Makespan{"zb-h2", 8, 16, kUnequal, 0.1, 55.7},
    Makespan{"zb-h2", 8, 32, kUnequal, 0.1, 103.7},
    Makespan{"zb-v", 4, 4, kEqual, 0, 15},
    Makespan{"zb-v", 8, 8, kEqual, 0, 31},
    Makespan{"zb-v", 8, 8, kEqual, 0.1, 33.8},
    Makespan{"zb-v", 8, 8, kEqual, 0.3, 39.4},
    Makespan{"zb-v", 8, 8, kEqual, 0.5, 45},
    Makespan{"zb-v", 8, 8, kUnequal, 0.1, 35.9},
    Makespan{"zb-v", 8, 8, kUnequal, 0.3, 41.5},
    Makespan{"zb-v", 8, 16, kEqual, 0, 51.5},
    Makespan{"zb-v", 8, 16, kUnequal, 0.1, 56.2},
    Makespan{"zb-v", 8, 32, kUnequal, 0.1, 104.2},
    Makespan{"v-half", 8, 16, kUnequal, 0.1, 70},
    Makespan{"v-half", 8, 32, kUnequal, 0.1, 70 + 16 * 3.15},
    Makespan{"v-min", 8, 16, kUnequal, 0.1, 87.45},
    Makespan{"v-min", 8, 32, kUnequal, 0.1, 87.45 + 16 * 4.4},
    Makespan{"interleaved-1f1b", 4, 4, kEqual, 0, 16.5},
    Makespan{"interleaved-1f1b", 8, 8, kEqual, 0, 34.5},
    Makespan{"interleaved-1f1b", 8, 16, kEqual, 0, 58.5},
    Makespan{"interleaved-1f1b", 8, 8, kEqual, 0.1, 37.5},
    Makespan{"interleaved-1f1b", 8, 8, kUnequal, 0.1, 37.5, 0.05},
    Makespan{"interleaved-1f1b", 8, 16, kUnequal, 0.1, 61.5},
    Makespan{"interleaved-1f1b", 8, 32, kUnequal, 0.1, 109.5},
    Makespan{"dualpipe", 8, 16, kEqual, 0, 51},
    Makespan{"dualpipe", 8, 16, kUnequal, 0.1, 54.7},
    Makespan{"dualpipe", 8, 32, kUnequal, 0.1, 102.7},
    Makespan{"hanayo-zb", 8, 16, kEqual, 0, 51.5},
    Makespan{"hanayo", 8, 16, kEqual, 0, 72.5},
};

TEST(MakespanTableTest, UsualShapesMatchTheIndependentSimulator) {
  for (const Makespan& row : kMakespans) {
    const Generator& generator = find_generator(row.name);
    const PipelineShape shape = default_shape(generator, row.stages, row.micro_batches);
    const Timeline timeline = testing::timed(generator.generate(shape), row.costs, row.latency);
    EXPECT_NEAR(timeline.makespan, row.makespan, row.printed) << testing::describe(row.name, shape);
    EXPECT_LE(timeline.lower_bound, timeline.makespan) << testing::describe(row.name, shape);
  }
}

TEST(MakespanTableTest, MoreChunksStopPayingAtHighLatency) {
  const auto makespan = [](std::int64_t chunks, std::int64_t n) {
    PipelineShape shape = zb(OpOrder::Deepest, chunks);
    shape.micro_batches = n;
    return testing::timed(find_generator("chimera-zb").generate(shape), SplitCosts{1, 1, 1}, 0.3).makespan;
  };
  EXPECT_LT(makespan(1, 16), makespan(2, 16));
}

}  // namespace
}  // namespace chimera
