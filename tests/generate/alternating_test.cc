// Schedules of one replica with warm-up forwards and turns (generate/alternating.cc).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "check/check_schedule.h"
#include "schedule/schedule_csv.h"
#include "schedule/slice_bounds.h"
#include "support/generators.h"
#include "support/paths.h"
#include "support/schedules.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using testing::SplitCosts;

TEST(GpipeTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("gpipe")) {
    const Timeline timeline = testing::timed(gpipe(shape), 1, 2);
    EXPECT_DOUBLE_EQ(timeline.makespan, 3 * testing::slots_of_flow(shape));
    for (const auto& worker : timeline.workers) {
      EXPECT_EQ(worker.peak_in_flight, shape.micro_batches * shape.slices);
      EXPECT_EQ(worker.peak_stage_units, shape.micro_batches);
    }
  }
}

TEST(GpipeTest, SlicesGoForwardInOrderAndBackwardInReverse) {
  const Schedule schedule = gpipe({.stages = 1, .micro_batches = 2, .slices = 2});
  EXPECT_EQ(testing::ops(schedule)[0], "0F0.0 0F0.1 0F1.0 0F1.1 0B0.1 0B0.0 0B1.1 0B1.0");
}

TEST(OneFOneBTest, MakespanAndActivationsAreTheClosedForms) {
  for (const PipelineShape& shape : testing::small_shapes("1f1b")) {
    const Timeline timeline = testing::timed(one_f_one_b(shape), 1, 2);
    EXPECT_DOUBLE_EQ(timeline.makespan, 3 * testing::slots_of_flow(shape));
    for (std::int64_t s = 0; s < shape.stages; ++s)
      EXPECT_EQ(timeline.workers[static_cast<std::size_t>(s)].peak_in_flight,
                std::min(shape.stages - 1 - s + shape.slices, shape.micro_batches * shape.slices));
  }
}

TEST(OneFOneBTest, SlicesMeetTheLowerBound) {
  for (const std::int64_t k : {1, 2, 3, 4, 7, 8, 16}) {
    for (const std::int64_t d : {1, 2, 3, 5, 8}) {
      for (const std::int64_t n : {1, 2, 5, 8, 16}) {
        const PipelineShape shape{.stages = d, .micro_batches = n, .slices = k};
        const Timeline timeline = testing::timed(one_f_one_b(shape), 1, 2);
        EXPECT_NEAR(timeline.makespan, 3 * testing::slots_of_flow(shape), 1e-9) << testing::describe("1f1b", shape);
        EXPECT_NEAR(timeline.lower_bound, timeline.makespan, 1e-9) << testing::describe("1f1b", shape);
      }
    }
  }
}

TEST(OneFOneBTest, FirstWorkerOfEightHoldsElevenEighths) {
  const Schedule schedule = one_f_one_b({.stages = 4, .micro_batches = 8, .slices = 8});
  const Timeline timeline = testing::timed(schedule, 1, 2);
  EXPECT_EQ(timeline.workers[0].peak_in_flight, 11);
  EXPECT_EQ(micro_batches_in_flight(schedule, timeline.workers[0]), 1.375);
  EXPECT_EQ(timeline.workers[0].peak_stage_units, 1.375);
}

// The figures are of an independent simulation (D = 8, N = 16, k = 4).
TEST(OneFOneBTest, SlicesOfEqualTimesBeatSlicesOfEqualTokens) {
  const Schedule schedule = one_f_one_b({.stages = 8, .micro_batches = 16, .slices = 4});
  const auto makespan = [&](double attention, const std::vector<double>& bounds) {
    CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
    costs.slices = {attention, bounds};
    return simulate(schedule, costs).makespan;
  };
  const std::vector<double> equal = {0, 0.25, 0.5, 0.75, 1};
  EXPECT_NEAR(makespan(0, equal), 53.25, 1e-9);
  EXPECT_NEAR(makespan(0.25, equal), 62.7, 0.05);
  EXPECT_NEAR(makespan(0.5, equal), 72.1, 0.05);
  for (const double attention : {0.0, 0.25, 0.5, 1.0}) {
    EXPECT_NEAR(makespan(attention, {}), 53.25, 1e-9);
    EXPECT_NEAR(makespan(attention, balanced_bounds(4, attention)), 53.25, 1e-9);
  }
}

PipelineShape in_chunks(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
  return {.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
}

TEST(LoopedBfsTest, EachStageIsVisitedOnceForwardAndOnceBackward) {
  EXPECT_THAT(testing::orders(looped_bfs(in_chunks(1, 2, 3))), ElementsAre("F0 F1 F0 F1 F0 F1 B0 B1 B0 B1 B0 B1"));
  EXPECT_EQ(testing::orders(looped_bfs(in_chunks(3, 4, 1))), testing::orders(find_generator("gpipe").generate({3, 4})));
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
  EXPECT_EQ(looped_bfs(in_chunks(4, 8, 2)), theirs);
}

TEST(InterleavedTest, StagesAreAssignedRoundRobin) {
  const Schedule schedule = interleaved_one_f_one_b(in_chunks(2, 2, 3));
  EXPECT_EQ(schedule.stages, 6);
  EXPECT_THAT(schedule.placement.worker_of,
              ElementsAre(ElementsAre(WorkerId(0), WorkerId(1), WorkerId(0), WorkerId(1), WorkerId(0), WorkerId(1))));
}

TEST(InterleavedTest, MakespanOfFullGroupsIsTheClosedForm) {
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (std::int64_t groups = 1; groups <= 4; ++groups) {
      for (std::int64_t v = 1; v <= 4; ++v) {
        for (const double b : {0.5, 1.0, 2.0, 3.5}) {
          const PipelineShape asked = in_chunks(d, groups * d, v);
          const double ops = static_cast<double>(groups * d) + static_cast<double>(d - 1) / static_cast<double>(v);
          EXPECT_NEAR(testing::timed(interleaved_one_f_one_b(asked), 1, b).makespan, ops * (1 + b), 1e-9)
              << testing::describe("interleaved-1f1b", asked) << " B=" << b;
        }
      }
    }
  }
}

TEST(InterleavedTest, FirstWorkersHoldMost) {
  for (const PipelineShape& asked : testing::small_shapes("interleaved-1f1b", 8)) {
    const auto [d, n, v] = std::tuple(asked.stages, asked.micro_batches, asked.chunks);
    const std::int64_t group = n / std::max<std::int64_t>(1, n / d);
    const Timeline timeline = testing::timed(interleaved_one_f_one_b(asked), 1, 2);
    for (std::int64_t r = 0; r < d; ++r) {
      EXPECT_EQ(timeline.workers[static_cast<std::size_t>(r)].peak_in_flight,
                std::min(2 * (d - 1 - r) + (v - 1) * group + 1, n * v))
          << testing::describe("interleaved-1f1b", asked) << " worker " << r;
    }
  }
}

TEST(InterleavedTest, GroupsGrowIfDepthDoesNotDivideN) {
  EXPECT_THAT(testing::orders(interleaved_one_f_one_b(in_chunks(2, 3, 2))),  // one group of 3
              ElementsAre("F0 F1 F2 F0 F1 F2 B0 B1 B2 B0 B1 B2", "F0 F1 F2 F0 B0 F1 B1 F2 B2 B0 B1 B2"));
}

TEST(InterleavedTest, AcceptsCountsThatSplitIntoEqualGroups) {
  const auto accepted = [](std::int64_t d) {
    std::vector<std::int64_t> counts;
    for (const PipelineShape& asked : testing::small_shapes("interleaved-1f1b", d)) {
      if (asked.stages == d && asked.chunks == 2) counts.push_back(asked.micro_batches);
    }
    return counts;
  };
  EXPECT_THAT(accepted(4), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 10, 12));
}

std::size_t num_pairs(const std::vector<Op>& ops) {
  return static_cast<std::size_t>(std::ranges::count_if(ops, &Op::paired));
}

TEST(CombinedTest, EveryTurnIsAPair) {
  const Schedule schedule = combined_one_f_one_b(in_chunks(2, 4, 1));
  EXPECT_THAT(testing::ops(schedule),
              ElementsAre("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"));
  EXPECT_EQ(num_pairs(schedule.workers[0]), 1U);
  EXPECT_EQ(num_pairs(schedule.workers[1]), 3U);
}

TEST(CombinedTest, InOrderItIsAsFastAsInterleaved1F1BAndHoldsOneMore) {
  for (const PipelineShape& asked : testing::small_shapes("combined-1f1b", 6)) {
    const Timeline timeline = testing::timed(combined_one_f_one_b(asked), 1, 2);
    if (asked.micro_batches % asked.stages == 0)
      EXPECT_DOUBLE_EQ(timeline.makespan, testing::timed(interleaved_one_f_one_b(asked), 1, 2).makespan)
          << testing::describe("combined-1f1b", asked);
    const std::int64_t group = asked.micro_batches / std::max<std::int64_t>(1, asked.micro_batches / asked.stages);
    for (std::int64_t r = 0; r < asked.stages; ++r) {
      EXPECT_EQ(
          timeline.workers[static_cast<std::size_t>(r)].peak_in_flight,
          std::min(2 * (asked.stages - 1 - r) + (asked.chunks - 1) * group + 2, asked.micro_batches * asked.chunks));
    }
  }
}

TEST(CombinedTest, JointPairsSaveTimeInEveryTurn) {
  for (const std::int64_t d : {1, 2, 4, 8}) {
    for (const std::int64_t v : {1, 2, 3}) {
      for (const std::int64_t n : {2 * d, 4 * d}) {
        const Schedule schedule = combined_one_f_one_b(in_chunks(d, n, v));
        ASSERT_TRUE(check(schedule).empty());
        for (const double together : {2.0, 2.4, 3.0}) {
          CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
          costs.pair = together / 3;
          const auto chunks = static_cast<double>(v);
          const double in_order = static_cast<double>(n) * 3 + static_cast<double>(d - 1) * 3 / chunks;
          const auto pairs = static_cast<double>(n * v - (v - 1) * d - 1);
          EXPECT_NEAR(simulate(schedule, costs).makespan, in_order - pairs * (3 - together) / chunks, 1e-9)
              << testing::describe("combined-1f1b", in_chunks(d, n, v)) << " F&B=" << together;
        }
      }
    }
  }
}

TEST(InterleavedZbTest, OrdersAtDepthFour) {
  EXPECT_THAT(testing::ops(interleaved_zb(in_chunks(4, 4, 2))),
              ElementsAre("0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 4I0 4W0 4I1 4W1 4I2 4W2 4I3 4W3 0I0 0W0 0I1 0W1 0I2 0W2 "
                          "0I3 0W3",
                          "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5I0 5F3 5I1 5W0 5I2 5W1 5I3 5W2 1I0 5W3 1I1 1W0 1I2 1W1 1I3 "
                          "1W2 1W3",
                          "2F0 2F1 2F2 2F3 6F0 6F1 6I0 6F2 6I1 6F3 6I2 6W0 6I3 6W1 2I0 6W2 2I1 6W3 2I2 2W0 2I3 2W1 "
                          "2W2 2W3",
                          "3F0 3F1 3F2 3F3 7F0 7I0 7F1 7I1 7F2 7I2 7F3 7I3 7W0 3I0 7W1 3I1 7W2 3I2 7W3 3I3 3W0 3W1 "
                          "3W2 3W3"));
}

TEST(InterleavedZbTest, EqualsPyTorch) {
  const std::string file = testing::source_path("/tests/fixtures/torch_csv/interleaved_zero_bubble.csv");
  Schedule theirs = schedule_from_csv(testing::read_file(file), file).schedule;
  theirs.name = "interleaved-zb";
  EXPECT_EQ(interleaved_zb(in_chunks(4, 8, 2)), theirs);
}

TEST(InterleavedZbTest, OneChunkIsZbH1) {
  for (const auto& [d, n] : {std::pair(4, 4), std::pair(5, 10), std::pair(8, 3)})
    EXPECT_EQ(interleaved_zb(in_chunks(d, n, 1)).workers, find_generator("zb-h1").generate({d, n}).workers);
}

constexpr std::array kInterleavedZbCosts = {SplitCosts{1, 1, 1},     SplitCosts{1, 1.3, 0.7}, SplitCosts{1, 2, 1},
                                            SplitCosts{2, 1, 1},     SplitCosts{1, 0.5, 1.5}, SplitCosts{0.5, 1, 0.25},
                                            SplitCosts{0.5, 0.5, 2}, SplitCosts{1, 1.5, 1.5}, SplitCosts{1, 3, 0.5}};

TEST(InterleavedZbTest, MakespanAndActivationsOfFullGroupsAreTheClosedForms) {
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (std::int64_t groups = 1; groups <= 3; ++groups) {
      for (std::int64_t v = 1; v <= 3; ++v) {
        for (const auto& [f, i, w] : kInterleavedZbCosts) {
          const PipelineShape asked = in_chunks(d, groups * d, v);
          const Timeline timeline = testing::timed(interleaved_zb(asked), SplitCosts{f, i, w});
          const double bubble = static_cast<double>(d - 1) * std::max({f, i, f + i - w}) / static_cast<double>(v);
          EXPECT_NEAR(timeline.makespan, static_cast<double>(groups * d) * (f + i + w) + bubble, 1e-9)
              << testing::describe("interleaved-zb", asked) << " I=" << i << " W=" << w;
          EXPECT_EQ(testing::most_in_flight(timeline), d * v) << testing::describe("interleaved-zb", asked);
        }
      }
    }
  }
}

TEST(InterleavedZbTest, NoOrderIsFasterAtEqualCosts) {
  for (const PipelineShape& asked : {in_chunks(4, 8, 2), in_chunks(8, 8, 3), in_chunks(5, 10, 2)}) {
    const Timeline timeline = testing::timed(interleaved_zb(asked), SplitCosts{1, 1, 1});
    EXPECT_NEAR(timeline.makespan, timeline.lower_bound, 1e-9) << testing::describe("interleaved-zb", asked);
  }
}

TEST(InterleavedZbTest, HoldsMoreIfDepthDoesNotDivideN) {
  EXPECT_EQ(testing::most_in_flight(testing::timed(interleaved_zb(in_chunks(4, 6, 2)), SplitCosts{1, 1, 1})), 2 * 5);
}

/// W at most F and I: the closed forms hold.
constexpr std::array kZbH1Costs = {SplitCosts{1, 1, 1}, SplitCosts{1, 1.25, 0.75}, SplitCosts{2, 3, 1},
                                   SplitCosts{3, 1, 1}, SplitCosts{1, 1.5, 1},     SplitCosts{1, 3, 0.5}};

TEST(ZbH1Test, BubblesAreTheClosedForms) {
  for (std::int64_t d = 1; d <= 12; ++d) {
    for (std::int64_t n = d; n <= 3 * d + 1; ++n) {
      for (const auto& [f, i, w] : kZbH1Costs) {
        const Timeline timeline = testing::timed(zb_h1({d, n}), SplitCosts{f, i, w});
        const double bubble = static_cast<double>(d - 1) * (f + i - w);
        const std::string where = testing::describe("zb-h1", {d, n}) + " I=" + std::to_string(i);
        EXPECT_EQ(timeline.makespan, static_cast<double>(n) * (f + i + w) + bubble) << where;
        EXPECT_EQ(testing::largest_inner_bubble(timeline), bubble) << where;
      }
    }
  }
}

TEST(ZbH1Test, EveryWorkerHoldsDepthActivations) {
  for (const PipelineShape& shape : testing::small_shapes("zb-h1"))
    testing::expect_in_flight("zb-h1", shape, shape.stages - 1 + shape.slices);
}

/// W at most F: the closed form holds.
constexpr std::array kZbH2Costs = {SplitCosts{1, 1, 1}, SplitCosts{1, 1.25, 0.75}, SplitCosts{2, 3, 1},
                                   SplitCosts{2, 1, 2}, SplitCosts{1, 1.5, 1},     SplitCosts{1, 3, 0.5}};

TEST(ZbH2Test, InnerBubbleIsTheClosedFormAndTheMakespanIncludesTheStagger) {
  for (std::int64_t d = 1; d <= 12; ++d) {
    for (std::int64_t n = 2 * d - 1; n <= 3 * d + 1; ++n) {
      for (const auto& [f, i, w] : kZbH2Costs) {
        const Timeline timeline = testing::timed(zb_h2({d, n}), SplitCosts{f, i, w});
        const auto others = static_cast<double>(d - 1);
        const std::string where = testing::describe("zb-h2", {d, n}) + " I=" + std::to_string(i);
        EXPECT_EQ(testing::largest_inner_bubble(timeline), others * std::max(0.0, f + i - 2 * w)) << where;
        EXPECT_GE(timeline.makespan, static_cast<double>(n) * (f + i + w) + others * f) << where;
      }
    }
  }
}

TEST(ZbH2Test, EveryWorkerHoldsAlmostTwiceDepth) {
  for (const PipelineShape& shape : testing::small_shapes("zb-h2"))
    testing::expect_in_flight("zb-h2", shape, 2 * shape.stages - 1);
}

TEST(PipedreamTwoBwTest, OneStepHasTheOrderOf1F1BAndTheFirstWeights) {
  for (const PipelineShape& shape : testing::small_shapes("pipedream-2bw")) {
    const Schedule schedule = pipedream_two_bw(shape);
    EXPECT_EQ(schedule.workers, one_f_one_b(shape).workers);  // all versions are 0
    EXPECT_EQ(schedule.updates, (AsynchronousUpdates{.micro_batches = shape.micro_batches, .versions = 2, .delay = 1}));
  }
}

TEST(PipedreamTest, OrderEquals1F1B) {
  for (const PipelineShape& shape : testing::small_shapes("pipedream"))
    EXPECT_EQ(testing::orders(pipedream(shape)), testing::orders(one_f_one_b(shape)));
}

/// Weight versions of the forwards, one row per worker.
std::vector<std::string> forward_versions(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (const auto& ops : schedule.workers) {
    auto& row = rows.emplace_back();
    for (const Op& op : ops) {
      if (op.kind == OpKind::Forward) row += (row.empty() ? "" : " ") + std::to_string(op.weight_version);
    }
  }
  return rows;
}

TEST(PipedreamTest, ForwardsUseTheNewestWeightsOfTheirStage) {
  EXPECT_THAT(forward_versions(pipedream({4, 8})),
              ::testing::ElementsAre("0 0 0 0 1 2 3 4", "0 0 0 1 2 3 4 5", "0 0 1 2 3 4 5 6", "0 1 2 3 4 5 6 7"));
}

TEST(PipedreamTest, UpdatesAfterEveryBackward) {
  EXPECT_EQ(pipedream({4, 8}).updates, (AsynchronousUpdates{.micro_batches = 1, .versions = 4}));
  EXPECT_EQ(pipedream({4, 3}).updates, (AsynchronousUpdates{.micro_batches = 1, .versions = 4}));
}

}  // namespace
}  // namespace chimera
