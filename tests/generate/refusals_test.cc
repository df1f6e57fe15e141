// Shapes that the schedules refuse, and why.

#include <gmock/gmock.h>

#include "core/error.h"
#include "support/schedules.h"

namespace chimera {
namespace {

struct RefusedShape {
  const char* name;
  PipelineShape shape;
  const char* message;
};

constexpr const char* kNoStages = "--stages must be at least 1, not 0";
constexpr const char* kNoMicroBatches = "--micro-batches must be at least 1, not 0";
constexpr const char* kManyOps = "more than 100000000 ops";
constexpr std::int64_t kHuge = 1'000'000'000'000;

const std::array kRefusedShapes = {
    RefusedShape{"gpipe", {0, 4}, kNoStages},
    RefusedShape{"gpipe", {4, -1}, "--micro-batches must be at least 1, not -1"},
    RefusedShape{"gpipe", {kHuge, kHuge}, kManyOps},
    RefusedShape{"1f1b", {4, 0}, kNoMicroBatches},
    RefusedShape{"1f1b", {-4, 4}, "--stages must be at least 1, not -4"},
    RefusedShape{"gems", {4, 0}, kNoMicroBatches},
    RefusedShape{"gems", {-4, 4}, "--stages must be at least 1, not -4"},
    RefusedShape{"looped-bfs", {.stages = 0, .micro_batches = 4, .chunks = 2}, kNoStages},
    RefusedShape{"looped-bfs", {.stages = 4, .micro_batches = 0, .chunks = 2}, kNoMicroBatches},
    RefusedShape{"looped-bfs", {.stages = 4, .micro_batches = 4, .chunks = 0}, "--chunks must be at least 1, not 0"},
    RefusedShape{"looped-bfs", {.stages = 4, .micro_batches = 4, .chunks = kHuge}, kManyOps},
    RefusedShape{"interleaved-1f1b", {4, 9}, "--micro-batches must be a multiple of N div D = 2, not 9"},
    RefusedShape{
        "interleaved-1f1b", {.stages = 4, .micro_batches = 4, .chunks = 0}, "--chunks must be at least 1, not 0"},
    RefusedShape{"interleaved-1f1b", {0, 4}, kNoStages},
    RefusedShape{"interleaved-1f1b", {4, 0}, kNoMicroBatches},
    RefusedShape{"interleaved-1f1b", {.stages = 4, .micro_batches = 4, .chunks = 1'000'000 * kHuge}, kManyOps},
    RefusedShape{"interleaved-1f1b", {.stages = 10'000, .micro_batches = 4'000, .chunks = 2}, kManyOps},
    RefusedShape{
        "combined-1f1b", {.stages = 4, .micro_batches = 9, .chunks = 2}, "must be a multiple of N div D = 2, not 9"},
    RefusedShape{"combined-1f1b", {.stages = 4, .micro_batches = 0, .chunks = 2}, kNoMicroBatches},
    RefusedShape{
        "interleaved-zb", {.stages = 4, .micro_batches = 9, .chunks = 2}, "must be a multiple of N div D = 2, not 9"},
    RefusedShape{
        "interleaved-zb", {.stages = 4, .micro_batches = 4, .chunks = 0}, "--chunks must be at least 1, not 0"},
    RefusedShape{"interleaved-zb", {.stages = 1'000, .micro_batches = 10'000, .chunks = 4}, kManyOps},
    RefusedShape{"zb-h1", {4, 0}, kNoMicroBatches},
    RefusedShape{"zb-h1", {0, 4}, kNoStages},
    RefusedShape{"zb-h1", {10'000, 4'000}, kManyOps},
    RefusedShape{"zb-h2", {4, 0}, kNoMicroBatches},
    RefusedShape{"zb-h2", {0, 4}, kNoStages},
    RefusedShape{"pipedream", {4, 0}, kNoMicroBatches},
    RefusedShape{"pipedream", {0, 4}, kNoStages},
    RefusedShape{"pipedream-2bw", {4, 3}, "--micro-batches must be at least --stages = 4, not 3"},
    RefusedShape{"pipedream-2bw", {0, 4}, kNoStages},
    RefusedShape{"zb-v", {0, 4}, kNoStages},
    RefusedShape{"zb-v", {4, 0}, kNoMicroBatches},
    RefusedShape{"zb-v", {1'000'000, 17}, kManyOps},
    RefusedShape{"v-half", {0, 4}, kNoStages},
    RefusedShape{"v-half", {4, 0}, kNoMicroBatches},
    RefusedShape{"v-half", {10'000, 2'000}, kManyOps},
    RefusedShape{"v-min", {0, 4}, kNoStages},
    RefusedShape{"v-min", {4, 0}, kNoMicroBatches},
    RefusedShape{"v-min", {10'000, 2'000}, kManyOps},
    RefusedShape{"hanayo", {.stages = 0, .micro_batches = 4, .waves = 1}, kNoStages},
    RefusedShape{"hanayo", {.stages = 4, .micro_batches = 4, .waves = 0}, "--waves must be at least 1, not 0"},
    RefusedShape{"hanayo", {.stages = 4, .micro_batches = 4, .waves = 1'000'000 * kHuge}, kManyOps},
    RefusedShape{"hanayo", {.stages = 1'000, .micro_batches = 1'000, .waves = 26}, kManyOps},
    RefusedShape{"hanayo-zb", {.stages = 0, .micro_batches = 4, .waves = 1}, kNoStages},
    RefusedShape{"hanayo-zb", {.stages = 4, .micro_batches = 4, .waves = 0}, "--waves must be at least 1, not 0"},
    RefusedShape{"hanayo-zb", {.stages = 1'000, .micro_batches = 1'000, .waves = 17}, kManyOps},
    RefusedShape{"dualpipe", {8, 8}, "--micro-batches must be at least 2D = 16 and even, not 8"},
    RefusedShape{"dualpipe", {8, 17}, "--micro-batches must be at least 2D = 16 and even, not 17"},
    RefusedShape{"dualpipe", {5, 16}, "--stages must be even, not 5"},
    RefusedShape{"dualpipe", {0, 16}, "--stages must be even and at least 2, not 0"},
    RefusedShape{"dualpipe", {8, kHuge}, kManyOps},
    RefusedShape{"dualpipev", {4, 7}, "--micro-batches must be at least 2D = 8, not 7"},
    RefusedShape{"dualpipev", {0, 7}, kNoStages},
    RefusedShape{"chimera", {5, 5}, "--stages must be even, not 5"},
    RefusedShape{"chimera", {0, 4}, "--stages must be even and at least 2, not 0"},
    RefusedShape{"chimera", {4, 0}, kNoMicroBatches},
    RefusedShape{"chimera", {12, 12, 8}, "2, 4, 6, 12; not 8"},
    RefusedShape{"chimera", {4, 4, 3}, "--pipelines must be twice a divisor of D/2 = 2: 2, 4; not 3"},
    RefusedShape{"chimera", {4, kHuge}, kManyOps},
    RefusedShape{"chimera", {20'000, 1, 20'000}, "20000 pipelines of 20000 stages"},
    RefusedShape{"chimera", {.stages = 4, .micro_batches = 4, .chunks = 0}, "--chunks must be at least 1, not 0"},
    RefusedShape{"chimera", {.stages = 4, .micro_batches = 4, .chunks = kHuge}, "more than 100000000"},
    RefusedShape{"chimera", {1'000, 1, 1'000, 4'000}, "more than 100000000"},
    RefusedShape{"chimera-rotated", {0, 4}, ""},
    RefusedShape{"chimera-rotated", {4, 0}, kNoMicroBatches},
    RefusedShape{"chimera-rotated", {4, 4, 1}, "--pipelines"},
    RefusedShape{"chimera-rotated", {4, 4, 3}, ""},
    RefusedShape{"chimera-rotated", {5, 4}, ""},
    RefusedShape{"chimera-rotated", {kHuge, 4}, "more than 100000000"},
    RefusedShape{"chimera-zb", {5, 5}, "chimera-zb: --stages must be even, not 5"},
    RefusedShape{"chimera-zb", {4, 0}, "chimera-zb: --micro-batches must be at least 1"},
    RefusedShape{
        "chimera-zb", {12, 12, 8}, "chimera-zb: --pipelines must be twice a divisor of D/2 = 6: 2, 4, 6, 12; not 8"},
    RefusedShape{"chimera-zb", {6'000, 6'000}, kManyOps},
    RefusedShape{"chimera-zb", {.stages = 4, .micro_batches = 4, .chunks = 0}, "--chunks must be at least 1, not 0"},
    RefusedShape{"chimera-zb", {.stages = 1'000, .micro_batches = 10'000, .chunks = 4}, kManyOps},
};

TEST(RefusalsTest, EveryRowIsRefusedForItsReason) {
  for (const RefusedShape& row : kRefusedShapes) {
    EXPECT_THAT([&] { (void)find_generator(row.name).generate(row.shape); },
                ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(row.message)))
        << testing::describe(row.name, row.shape);
  }
}

TEST(RefusalsTest, TheNextShapeIsAccepted) {
  EXPECT_NO_THROW((void)find_generator("pipedream-2bw").generate({4, 4}));
  EXPECT_NO_THROW((void)find_generator("dualpipe").generate({8, 16}));
}

}  // namespace
}  // namespace chimera
