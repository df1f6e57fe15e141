// Values are from Li and Hoefler, SC'21, and its artifact.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "render/panel.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

double makespan(const PipelineShape& shape, double forward, double backward) {
  return testing::timed(chimera(shape), forward, backward).makespan;
}

/// The table of unit-time slots of each worker, as the paper draws it: `F0 . F1`.
std::vector<std::string> slot_table(const PipelineShape& shape) {
  const Schedule schedule = chimera(shape);
  const Timeline timeline = slot_timeline(schedule);
  std::vector<std::string> rows;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    std::vector<std::string> cells(static_cast<std::size_t>(timeline.makespan), ".");
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const Op& op = schedule.workers[w][i];
      cells[static_cast<std::size_t>(timeline.workers[w].ops[i].start)] =
          letter(op.kind) + std::to_string(op.micro_batch.value());
    }
    std::string row;
    for (const auto& cell : cells) row += (row.empty() ? "" : " ") + cell;
    rows.push_back(row);
  }
  return rows;
}

TEST(ChimeraTest, SlotTableAtDepthSixIsFigureSix) {
  EXPECT_THAT(
      slot_table({6, 6}),
      ElementsAre("F0 . F1 . F2 F3 B3 F4 B4 F5 B5 B0 . B1 . B2", ". F0 . F1 F3 F2 F4 B3 F5 B4 B0 B5 B1 . B2 .",
                  ". . F0 F3 F1 F4 F2 F5 B3 B0 B4 B1 B5 B2 . .", ". . F3 F0 F4 F1 F5 F2 B0 B3 B1 B4 B2 B5 . .",
                  ". F3 . F4 F0 F5 F1 B0 F2 B1 B3 B2 B4 . B5 .", "F3 . F4 . F5 F0 B0 F1 B1 F2 B2 B3 . B4 . B5"));
}

TEST(ChimeraTest, SlotTableAtDepthEight) {
  EXPECT_THAT(slot_table({8, 8}), ElementsAre("F0 . F1 . F2 . F3 F4 B4 F5 B5 F6 B6 F7 B7 B0 . B1 . B2 . B3",
                                              ". F0 . F1 . F2 F4 F3 F5 B4 F6 B5 F7 B6 B0 B7 B1 . B2 . B3 .",
                                              ". . F0 . F1 F4 F2 F5 F3 F6 B4 F7 B5 B0 B6 B1 B7 B2 . B3 . .",
                                              ". . . F0 F4 F1 F5 F2 F6 F3 F7 B4 B0 B5 B1 B6 B2 B7 B3 . . .",
                                              ". . . F4 F0 F5 F1 F6 F2 F7 F3 B0 B4 B1 B5 B2 B6 B3 B7 . . .",
                                              ". . F4 . F5 F0 F6 F1 F7 F2 B0 F3 B1 B4 B2 B5 B3 B6 . B7 . .",
                                              ". F4 . F5 . F6 F0 F7 F1 B0 F2 B1 F3 B2 B4 B3 B5 . B6 . B7 .",
                                              "F4 . F5 . F6 . F7 F0 B0 F1 B1 F2 B2 F3 B3 B4 . B5 . B6 . B7"));
}

TEST(ChimeraTest, DirectConcatenationIsTheArtifactsOrder) {
  EXPECT_THAT(testing::orders(chimera({4, 8})), ElementsAre("F0 F1 F2 B2 F3 B3 B0 F4 B1 F5 F6 B6 F7 B7 B4 B5",
                                                            "F0 F2 F1 F3 B2 B0 B3 B1 F4 F6 F5 F7 B6 B4 B7 B5",
                                                            "F2 F0 F3 F1 B0 B2 B1 B3 F6 F4 F7 F5 B4 B6 B5 B7",
                                                            "F2 F3 F0 B0 F1 B1 B2 F6 B3 F7 F4 B4 F5 B5 B6 B7"));
}

TEST(ChimeraTest, FourPipelinesAreFigureEight) {
  EXPECT_THAT(
      testing::orders(chimera({8, 8, 4})),
      ElementsAre("F0 F1 F6 F2 F7 F3 F4 B4 F5 B5 B2 B6 B3 B7 B0 B1", "F0 F6 F1 F7 F2 F4 F3 F5 B4 B2 B5 B3 B6 B0 B7 B1",
                  "F6 F0 F7 F1 F4 F2 F5 F3 B2 B4 B3 B5 B0 B6 B1 B7", "F6 F7 F0 F4 F1 F5 F2 B2 F3 B3 B4 B0 B5 B1 B6 B7",
                  "F2 F3 F4 F0 F5 F1 F6 B6 F7 B7 B0 B4 B1 B5 B2 B3", "F2 F4 F3 F5 F0 F6 F1 F7 B6 B0 B7 B1 B4 B2 B5 B3",
                  "F4 F2 F5 F3 F6 F0 F7 F1 B0 B6 B1 B7 B2 B4 B3 B5",
                  "F4 F5 F2 F6 F3 F7 F0 B0 F1 B1 B6 B2 B7 B3 B4 B5"));
}

TEST(ChimeraTest, SlotOrderIsThePerWorkerRule) {
  for (std::int64_t depth = 2; depth <= 24; depth += 2) {
    for (std::int64_t units = 1; units <= 3; ++units) {
      const auto rows = testing::orders(chimera({depth, units * depth}));
      for (std::int64_t w = 0; w < depth; ++w)
        EXPECT_EQ(rows[static_cast<std::size_t>(w)], testing::chimera_rule(depth, units, w, 1))
            << "D=" << depth << " K=" << units;
    }
  }
}

TEST(ChimeraTest, MakespanOfFullUnitsIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 16; depth += 2) {
    for (std::int64_t units = 1; units <= 4; ++units) {
      for (const double b : {1.0, 2.0, 3.0, 1.5}) {
        EXPECT_DOUBLE_EQ(makespan({depth, units * depth}, 1, b), static_cast<double>(depth + 2 * (units - 1)) +
                                                                     static_cast<double>((2 * depth - 2) * units) * b)
            << "D=" << depth << " K=" << units << " B=" << b;
      }
    }
  }
}

TEST(ChimeraTest, MakespanOfAPartialUnitIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 16; depth += 2) {
    for (std::int64_t n = 1; n <= depth; ++n) {
      const std::int64_t even = n + n % 2;  // an odd N takes as long as N + 1
      EXPECT_EQ(makespan({depth, n}, 1, 2), static_cast<double>(depth + 2 * (depth + even - 2)))
          << "D=" << depth << " N=" << n;
    }
  }
}

TEST(ChimeraTest, MakespanOfManyPipelinesAndUnitsIsTheClosedForm) {
  for (std::int64_t depth = 2; depth <= 32; depth += 2) {
    for (std::int64_t f = 1; f <= depth / 2; ++f) {
      if ((depth / 2) % f != 0) continue;
      for (std::int64_t units = 1; units <= (depth <= 16 ? 4 : 1); ++units) {
        for (const std::int64_t b : {1, 2, 3}) {
          EXPECT_EQ(
              makespan({depth, units * depth, 2 * f}, 1, static_cast<double>(b)),
              static_cast<double>(depth + (units - 1) * (depth - depth / f + 2) + units * (depth + depth / f - 2) * b))
              << "D=" << depth << " f=" << f << " K=" << units;
        }
      }
    }
  }
}

TEST(ChimeraTest, FewMicroBatchesOnManyStagesAreFast) {
  const Schedule schedule = chimera({100'000, 1});
  EXPECT_THAT(testing::orders(schedule), Each("F0 B0"));
}

TEST(ChimeraTest, BubbleRatiosOfThePaper) {
  EXPECT_DOUBLE_EQ(testing::timed(chimera({4, 4}), 1, 1).bubble_ratio, 2.0 / 10);
  EXPECT_DOUBLE_EQ(testing::timed(chimera({4, 4}), 1, 2).bubble_ratio, 4.0 / 16);
  EXPECT_DOUBLE_EQ(testing::timed(chimera({4, 8}), 1, 2).bubble_ratio, 6.0 / 30);
}

TEST(ChimeraTest, ActivationsOfTheEndWorkersAreFewest) {
  for (std::int64_t depth = 2; depth <= 16; depth += 2) {
    for (std::int64_t units = 1; units <= 3; ++units) {
      const Timeline timeline = testing::timed(chimera({depth, units * depth}), 1, 2);
      for (std::int64_t w = 0; w < depth; ++w)
        EXPECT_EQ(timeline.workers[static_cast<std::size_t>(w)].peak_in_flight,
                  depth / 2 + 1 + std::min(w, depth - 1 - w));
    }
  }
}

/// With unit times and whole units every op runs in its slot.
TEST(ChimeraTest, NoTwoOpsShareASlot) {
  for (std::int64_t depth = 2; depth <= 64; depth += 2) {
    for (std::int64_t f = 1; f <= depth / 2; ++f) {
      if ((depth / 2) % f != 0) continue;
      const Schedule schedule = chimera({depth, depth + depth / 2, 2 * f});
      for (const auto& ops : schedule.workers) {
        std::map<std::int64_t, Op> at;
        const auto ids = micro_batches_of_replicas(schedule);
        for (const Op& op : ops) {
          const std::int64_t unit = op.micro_batch.value() / depth;
          const auto& mine = ids[op.replica.index()];
          std::int64_t m = 0;  // index within its pipeline and unit
          for (const MicroBatchId id : mine) m += id < op.micro_batch && id.value() / depth == unit;
          const std::int64_t s = op.stage.value();
          const std::int64_t slot = 2 * depth * unit + 2 * m + (op.kind == OpKind::Forward ? s : 2 * depth - 1 - s);
          EXPECT_TRUE(at.emplace(slot, op).second) << "D=" << depth << " f=" << f << " slot " << slot;
        }
      }
    }
  }
}

TEST(ChimeraTest, OneMicroBatchRunsOnOnePipeline) {
  const auto ids = micro_batches_of_replicas(chimera({8, 1, 4}));
  EXPECT_THAT(ids, ElementsAre(ElementsAre(MicroBatchId(0)), ElementsAre(), ElementsAre(), ElementsAre()));
}

TEST(ChimeraTest, TheRemainderGoesDownBeforeUp) {
  const auto sizes = [](const PipelineShape& shape) {
    std::vector<std::size_t> result;
    for (const auto& ids : micro_batches_of_replicas(chimera(shape))) result.push_back(ids.size());
    return result;
  };
  EXPECT_THAT(sizes({4, 3}), ElementsAre(2, 1));
  EXPECT_THAT(sizes({8, 2, 4}), ElementsAre(1, 1, 0, 0));  // down 0, down 1, up 0, up 1
  EXPECT_THAT(sizes({8, 7, 4}), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(sizes({8, 11, 4}), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(sizes({4, 7}), ElementsAre(4, 3));
}

}  // namespace
}  // namespace chimera
