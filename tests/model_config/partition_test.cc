#include "model_config/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(EvenPartitionTest, GivesTheRemainderToTheFirstStages) {
  EXPECT_THAT(even_partition(10, 4), ElementsAre(StageLayers{0, 3, true, false}, StageLayers{3, 6, false, false},
                                                 StageLayers{6, 8, false, false}, StageLayers{8, 10, false, true}));
}

TEST(EvenPartitionTest, OneStageHasEverything) {
  EXPECT_THAT(even_partition(7, 1), ElementsAre(StageLayers{0, 7, true, true}));
}

RC_GTEST_PROP(EvenPartitionTest, CoversEveryLayerOnceInStagesOfNearlyEqualLength, ()) {
  const auto layers = *rc::gen::inRange<std::int64_t>(1, 300);
  const auto stages = *rc::gen::inRange<std::int64_t>(1, layers + 1);
  const auto partition = even_partition(layers, stages);
  RC_ASSERT(std::ssize(partition) == stages);
  std::int64_t next = 0;
  std::int64_t longest = layers;  // longest stage so far; stages never grow
  for (const StageLayers& stage : partition) {
    const std::int64_t length = stage.end_layer - stage.first_layer;
    RC_ASSERT(stage.first_layer == next);
    RC_ASSERT(length >= layers / stages);
    RC_ASSERT(length <= (layers + stages - 1) / stages);
    RC_ASSERT(length <= longest);
    RC_ASSERT(stage.embedding == (stage.first_layer == 0));
    RC_ASSERT(stage.head == (stage.end_layer == layers));
    next = stage.end_layer;
    longest = length;
  }
  RC_ASSERT(next == layers);
}

TEST(EvenPartitionTest, RefusesMoreStagesThanLayersNamingBoth) {
  EXPECT_THAT([] { (void)even_partition(4, 5); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("4 layers"), HasSubstr("5 stages"))));
  EXPECT_THROW((void)even_partition(4, 0), ConfigError);
  EXPECT_THROW((void)even_partition(4, -1), ConfigError);
}

}  // namespace
}  // namespace chimera
