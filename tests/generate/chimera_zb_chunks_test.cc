// chimera-zb with v chunks per worker and its two orders.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "check/check_schedule.h"
#include "render/panel.h"
#include "render/text.h"
#include "support/generators.h"
#include "support/paths.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using testing::SplitCosts;

PipelineShape ordered(OpOrder order, std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks,
                      std::int64_t pipelines = 2) {
  return {.stages = stages, .micro_batches = micro_batches, .pipelines = pipelines, .chunks = chunks, .order = order};
}

/// The second half of the workers mirrors the first half, with the micro-batches of the other direction.
std::vector<std::string> first_half(const Schedule& schedule) {
  auto rows = testing::ops(schedule);
  rows.resize(rows.size() / 2);
  return rows;
}

TEST(ChimeraZbChunksTest, SlotOrderAtDepthFour) {
  EXPECT_THAT(first_half(chimera_zb(ordered(OpOrder::Slots, 4, 4, 2))),
              ElementsAre("0F0 0F1 3F2 4F2 3F3 4F3 7F0 7I0 7F1 7I1 4I2 3I2 4I3 3I3 0I0 7W0 0I1 7W1 4W2 3W2 4W3 3W3 "
                          "0W0 0W1",
                          "1F0 2F2 1F1 2F3 5F2 6F0 5F3 6F1 6I0 5I2 6I1 5I3 2I2 1I0 2I3 1I1 6W0 5W2 6W1 5W3 2W2 1W0 "
                          "2W3 1W1"));
}

TEST(ChimeraZbChunksTest, DeepestFirstOrderAtDepthFour) {
  EXPECT_THAT(first_half(chimera_zb(ordered(OpOrder::Deepest, 4, 4, 2))),
              ElementsAre("0F0 0F1 3F2 4F2 3F3 4F3 7F0 7I0 7W0 7F1 7I1 7W1 4I2 3I2 4W2 4I3 3I3 3W2 0I0 4W3 3W3 0I1 "
                          "0W0 0W1",
                          "1F0 1F1 2F2 2F3 5F2 6F0 5F3 6F1 6I0 6W0 5I2 6I1 5W2 5I3 2I2 6W1 1I0 2I3 5W3 1I1 2W2 1W0 "
                          "2W3 1W1"));
}

TEST(ChimeraZbChunksTest, AutoIsDeepestFirstForWholeUnitsOfManyChunks) {
  const auto orders_of = [](OpOrder order, std::int64_t n, std::int64_t v) {
    return chimera_zb(ordered(order, 4, n, v)).workers;
  };
  EXPECT_EQ(orders_of(OpOrder::Auto, 8, 1), orders_of(OpOrder::Slots, 8, 1));
  EXPECT_EQ(orders_of(OpOrder::Auto, 8, 2), orders_of(OpOrder::Deepest, 8, 2));
  EXPECT_EQ(orders_of(OpOrder::Auto, 6, 2), orders_of(OpOrder::Slots, 6, 2));
  EXPECT_EQ(orders_of(OpOrder::Auto, 3, 2), orders_of(OpOrder::Slots, 3, 2));
}

/// All even D up to `most_stages`, each with every legal 2f, v up to 4 and one to three units.
std::vector<PipelineShape> whole_units(std::int64_t most_stages) {
  std::vector<PipelineShape> shapes;
  for (std::int64_t depth = 2; depth <= most_stages; depth += 2) {
    for (std::int64_t f = 1; f <= depth / 2; ++f) {
      if ((depth / 2) % f != 0) continue;
      for (std::int64_t v = 1; v <= 4; ++v) {
        for (std::int64_t units = 1; units <= 3; ++units)
          shapes.push_back(ordered(OpOrder::Slots, depth, units * depth, v, 2 * f));
      }
    }
  }
  return shapes;
}

double bound_of_chunks(const PipelineShape& shape, const SplitCosts& costs, double latency) {
  return static_cast<double>(shape.micro_batches) * (costs.forward + costs.input_gradient + costs.weight_gradient) +
         static_cast<double>(shape.stages / shape.pipelines - 1) *
             (costs.forward / static_cast<double>(shape.chunks) + latency);
}

TEST(ChimeraZbChunksTest, SlotsReachTheBoundWithDepthActivations) {
  for (const PipelineShape& shape : whole_units(16)) {
    const Timeline timeline = testing::timed(chimera_zb(shape), SplitCosts{1, 1, 1});
    const double least = bound_of_chunks(shape, {1, 1, 1}, 0);
    EXPECT_NEAR(timeline.makespan, least, 1e-9) << testing::describe("chimera-zb", shape);
    EXPECT_NEAR(timeline.lower_bound, least, 1e-9) << testing::describe("chimera-zb", shape);
    for (const auto& worker : timeline.workers) EXPECT_EQ(worker.peak_in_flight, shape.chunks * shape.stages);
  }
}

TEST(ChimeraZbChunksTest, DeepestFirstHoldsNoMoreAndStaysAboveTheBound) {
  for (PipelineShape shape : whole_units(12)) {
    shape.order = OpOrder::Deepest;
    const Schedule schedule = chimera_zb(shape);
    ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-zb", shape);
    for (const SplitCosts& costs : {SplitCosts{1, 1, 1}, SplitCosts{1, 1.3, 0.7}, SplitCosts{0.5, 1, 2}}) {
      const Timeline timeline = testing::timed(schedule, costs, 0.1);
      EXPECT_LE(testing::most_in_flight(timeline), shape.chunks * shape.stages)
          << testing::describe("chimera-zb", shape);
      EXPECT_GE(timeline.makespan, bound_of_chunks(shape, costs, 0.1) - 1e-9) << testing::describe("chimera-zb", shape);
    }
  }
}

TEST(ChimeraZbChunksTest, DeepestFirstIsFasterWithLatencyAndUnequalCosts) {
  for (const std::int64_t depth : {4, 8, 16}) {
    for (std::int64_t units = 1; units <= 4; ++units) {
      const auto makespan = [&](OpOrder order, const SplitCosts& costs, double latency) {
        return testing::timed(chimera_zb(ordered(order, depth, units * depth, 2)), costs, latency).makespan;
      };
      EXPECT_LT(makespan(OpOrder::Deepest, {1, 1.3, 0.7}, 0.1), makespan(OpOrder::Slots, {1, 1.3, 0.7}, 0.1));
      EXPECT_LE(makespan(OpOrder::Slots, {1, 1, 1}, 0), makespan(OpOrder::Deepest, {1, 1, 1}, 0));
    }
  }
}

TEST(ChimeraZbChunksTest, AnyCountHoldsAtMostOneUnitMoreInEitherOrder) {
  for (const OpOrder order : {OpOrder::Slots, OpOrder::Deepest}) {
    for (const std::int64_t depth : {2, 4, 8}) {
      for (std::int64_t n = 1; n <= 3 * depth + 1; ++n) {
        const PipelineShape shape = ordered(order, depth, n, 2);
        const Schedule schedule = chimera_zb(shape);
        ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-zb", shape);
        EXPECT_LE(testing::most_in_flight(testing::timed(schedule, SplitCosts{1, 1, 1})), 2 * std::min(n, depth + 1))
            << testing::describe("chimera-zb", shape);
      }
    }
  }
}

/// Checks rows of the document's table, D = 8: | N | 2f | v | slots and deepest at equal costs | with latency | at
/// unequal costs |
TEST(ChimeraZbChunksTest, DocumentedMakespansAreCorrect) {
  std::ifstream document(testing::source_path("/docs/chimera_zb.md"));
  int rows = 0;
  for (std::string line; std::getline(document, line);) {
    std::ranges::replace(line, '|', ' ');
    std::istringstream cells(line);
    PipelineShape shape{.stages = 8};
    std::array<double, 6> makespans{};
    cells >> shape.micro_batches >> shape.pipelines >> shape.chunks;
    for (double& makespan : makespans) cells >> makespan;
    if (!cells) continue;
    ++rows;
    for (std::size_t i = 0; i < makespans.size(); ++i) {
      shape.order = i % 2 == 0 ? OpOrder::Slots : OpOrder::Deepest;
      const SplitCosts costs = i < 4 ? SplitCosts{1, 1, 1} : SplitCosts{1, 1.3, 0.7};
      EXPECT_NEAR(testing::timed(chimera_zb(shape), costs, i < 2 ? 0 : 0.1).makespan, makespans[i], 1e-9) << line;
    }
  }
  EXPECT_EQ(rows, 6);
}

TEST(ChimeraZbChunksTest, FigureIsTheGoldenFile) {
  const Schedule schedule = chimera_zb(ordered(OpOrder::Slots, 4, 4, 2));
  EXPECT_EQ(to_text(schedule, slot_timeline(schedule)), testing::golden("chimera-zb-chunks.txt"));
}

}  // namespace
}  // namespace chimera
