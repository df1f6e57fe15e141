#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(PipedreamTest, OrderEquals1F1B) {
  for (const PipelineShape& shape : testing::small_shapes("pipedream")) {
    EXPECT_EQ(testing::orders(pipedream(shape)), testing::orders(one_f_one_b(shape)));
  }
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

TEST(PipedreamTest, RejectsInvalidShapes) {
  EXPECT_THROW((void)pipedream({4, 0}), ConfigError);
  EXPECT_THROW((void)pipedream({0, 4}), ConfigError);
}

}  // namespace
}  // namespace chimera
