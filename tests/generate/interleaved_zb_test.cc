#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "schedule/schedule_csv.h"
#include "support/generators.h"
#include "support/paths.h"
#include "support/schedules.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using testing::SplitCosts;

PipelineShape interleaved_zb_shape(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
  return {.stages = stages, .micro_batches = micro_batches, .chunks = chunks};
}

TEST(InterleavedZbTest, OrdersAtDepthFour) {
  EXPECT_THAT(testing::ops(interleaved_zb(interleaved_zb_shape(4, 4, 2))),
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
  EXPECT_EQ(interleaved_zb(interleaved_zb_shape(4, 8, 2)), theirs);
}

TEST(InterleavedZbTest, OneChunkIsZbH1) {
  for (const auto& [d, n] : {std::pair(4, 4), std::pair(5, 10), std::pair(8, 3)}) {
    EXPECT_EQ(interleaved_zb(interleaved_zb_shape(d, n, 1)).workers, find_generator("zb-h1").generate({d, n}).workers);
  }
}

constexpr std::array kInterleavedZbCosts = {SplitCosts{1, 1, 1},     SplitCosts{1, 1.3, 0.7}, SplitCosts{1, 2, 1},
                                            SplitCosts{2, 1, 1},     SplitCosts{1, 0.5, 1.5}, SplitCosts{0.5, 1, 0.25},
                                            SplitCosts{0.5, 0.5, 2}, SplitCosts{1, 1.5, 1.5}, SplitCosts{1, 3, 0.5}};

TEST(InterleavedZbTest, MakespanAndActivationsOfFullGroupsAreTheClosedForms) {
  for (std::int64_t d = 1; d <= 8; ++d) {
    for (std::int64_t groups = 1; groups <= 3; ++groups) {
      for (std::int64_t v = 1; v <= 3; ++v) {
        for (const auto& [f, i, w] : kInterleavedZbCosts) {
          const PipelineShape asked = interleaved_zb_shape(d, groups * d, v);
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
  for (const PipelineShape& asked :
       {interleaved_zb_shape(4, 8, 2), interleaved_zb_shape(8, 8, 3), interleaved_zb_shape(5, 10, 2)}) {
    const Timeline timeline = testing::timed(interleaved_zb(asked), SplitCosts{1, 1, 1});
    EXPECT_NEAR(timeline.makespan, timeline.lower_bound, 1e-9) << testing::describe("interleaved-zb", asked);
  }
}

TEST(InterleavedZbTest, HoldsMoreIfDepthDoesNotDivideN) {
  EXPECT_EQ(testing::most_in_flight(testing::timed(interleaved_zb(interleaved_zb_shape(4, 6, 2)), SplitCosts{1, 1, 1})),
            2 * 5);
}

TEST(InterleavedZbTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)interleaved_zb(interleaved_zb_shape(4, 9, 2)), ConfigError);
  EXPECT_THROW((void)interleaved_zb(interleaved_zb_shape(4, 4, 0)), ConfigError);
  EXPECT_THROW((void)interleaved_zb(interleaved_zb_shape(1'000, 10'000, 4)), ConfigError);  // 1.2e8 ops
}

}  // namespace
}  // namespace chimera
