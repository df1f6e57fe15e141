// Bounds and peaks of docs/chimera_zb.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "check/check_schedule.h"
#include "support/generators.h"
#include "support/paths.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::SplitCosts;

/// N(F+I+W) + (D/2f - 1)(F+c)
double bound(const PipelineShape& shape, const SplitCosts& costs = {1, 1, 1}, double latency = 0) {
  return static_cast<double>(shape.micro_batches) * (costs.forward + costs.input_gradient + costs.weight_gradient) +
         static_cast<double>(shape.stages / shape.pipelines - 1) * (costs.forward + latency);
}

/// All even D up to `most_stages`, each with every legal 2f.
std::vector<PipelineShape> placements(std::int64_t most_stages) {
  std::vector<PipelineShape> shapes;
  for (std::int64_t depth = 2; depth <= most_stages; depth += 2) {
    for (std::int64_t f = 1; f <= depth / 2; ++f) {
      if ((depth / 2) % f == 0) shapes.push_back({.stages = depth, .pipelines = 2 * f});
    }
  }
  return shapes;
}

TEST(ChimeraZbTest, WholeUnitsReachTheBoundWithDepthActivations) {
  for (PipelineShape shape : placements(24)) {
    for (std::int64_t units = 1; units <= 4; ++units) {
      shape.micro_batches = units * shape.stages;
      const Schedule schedule = chimera_zb(shape);
      ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-zb", shape);
      const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1});
      EXPECT_DOUBLE_EQ(timeline.makespan, bound(shape)) << testing::describe("chimera-zb", shape);
      EXPECT_DOUBLE_EQ(timeline.lower_bound, bound(shape)) << testing::describe("chimera-zb", shape);
      for (const auto& worker : timeline.workers) EXPECT_EQ(worker.peak_in_flight, shape.stages);
    }
  }
}

TEST(ChimeraZbTest, ForwardsAndInputGradientsRunInChimerasOrder) {
  for (PipelineShape shape : placements(12)) {
    for (std::int64_t n = 1; n <= shape.stages; ++n) {
      shape.micro_batches = n;
      Schedule schedule = chimera_zb(shape);
      for (auto& ops : schedule.workers) {
        std::erase_if(ops, [](const Op& op) { return op.kind == OpKind::BackwardWeight; });
        for (Op& op : ops) {
          if (op.kind == OpKind::BackwardInput) op.kind = OpKind::Backward;
        }
      }
      EXPECT_EQ(schedule.workers, chimera(shape).workers) << testing::describe("chimera-zb", shape);
    }
  }
}

TEST(ChimeraZbTest, AnyCountHoldsAtMostOneActivationMore) {
  for (PipelineShape shape : placements(16)) {
    for (std::int64_t n = 1; n <= 3 * shape.stages + 1; ++n) {
      shape.micro_batches = n;
      const Schedule schedule = chimera_zb(shape);
      ASSERT_TRUE(check(schedule).empty()) << testing::describe("chimera-zb", shape);
      const Timeline timeline = testing::timed(schedule, SplitCosts{1, 1, 1});
      EXPECT_LE(testing::most_in_flight(timeline), std::min(n, shape.stages + 1))
          << testing::describe("chimera-zb", shape);
      EXPECT_GE(timeline.makespan, bound(shape));
      if (n > shape.stages) EXPECT_LE(timeline.makespan, 1.2 * bound(shape)) << testing::describe("chimera-zb", shape);
    }
  }
}

TEST(ChimeraZbTest, NoCostsBeatTheBound) {
  for (PipelineShape shape : placements(12)) {
    for (const std::int64_t n : {shape.stages / 2, shape.stages, shape.stages + 3, 2 * shape.stages}) {
      shape.micro_batches = n;
      for (const SplitCosts& costs : {SplitCosts{1, 1.3, 0.7}, SplitCosts{2, 0.5, 0.5}, SplitCosts{0.5, 1, 2}}) {
        for (const double latency : {0.0, 0.1, 0.5})
          EXPECT_GE(testing::timed(chimera_zb(shape), costs, latency).makespan, bound(shape, costs, latency) - 1e-9);
      }
    }
  }
}

/// Checks rows of the document's table: | D | N | 2f | v | makespan | bound | activations |
TEST(ChimeraZbTest, DocumentedFiguresAreCorrect) {
  std::ifstream document(testing::source_path("/docs/chimera_zb.md"));
  int rows = 0;
  for (std::string line; std::getline(document, line);) {
    std::istringstream cells(line);
    PipelineShape shape{.order = OpOrder::Slots};
    double makespan = 0;
    double printed_bound = 0;
    std::int64_t activations = 0;
    char bar = 0;
    cells >> bar >> shape.stages >> bar >> shape.micro_batches >> bar >> shape.pipelines >> bar >> shape.chunks >>
        bar >> makespan >> bar >> printed_bound >> bar >> activations;
    if (!cells || std::ranges::count(line, '|') != 8) continue;
    ++rows;
    const Timeline timeline = testing::timed(chimera_zb(shape), SplitCosts{1, 1, 1});
    EXPECT_DOUBLE_EQ(timeline.makespan, makespan) << line;
    EXPECT_DOUBLE_EQ(timeline.lower_bound, printed_bound) << line;
    EXPECT_EQ(testing::most_in_flight(timeline), activations * shape.chunks) << line;
  }
  EXPECT_GE(rows, 16);
}

TEST(ChimeraZbTest, DocumentShowsTheGoldenPicture) {
  std::ifstream document(testing::source_path("/docs/chimera_zb.md"));
  std::ostringstream text;
  text << document.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(testing::golden("chimera-zb.txt")));
}

TEST(ChimeraZbTest, FewMicroBatchesOnManyStagesAreFast) { EXPECT_EQ(num_ops(chimera_zb({100'000, 1})), 300'000); }

}  // namespace
}  // namespace chimera
