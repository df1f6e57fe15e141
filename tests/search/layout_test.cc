#include "search/layout.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/generators.h"

namespace chimera {
namespace {

std::vector<std::int64_t> workers_of(PlacementKind kind, const PipelineShape& shape) {
  const SearchLayout layout = make_search_layout(kind, shape);
  std::vector<std::int64_t> workers;
  for (const WorkerId worker : layout.placement.worker_of.at(0)) workers.push_back(worker.value());
  return workers;
}

TEST(LayoutTest, PlacesOneReplica) {
  const PipelineShape shape{.stages = 3, .micro_batches = 2, .chunks = 2, .waves = 2};
  using Workers = std::vector<std::int64_t>;
  EXPECT_EQ(workers_of(PlacementKind::Linear, shape), (Workers{0, 1, 2}));
  EXPECT_EQ(workers_of(PlacementKind::Loop, shape), (Workers{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(workers_of(PlacementKind::Wave, shape), (Workers{0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}));
}

TEST(LayoutTest, PlacesAndNumbersAsChimera) {
  for (const std::int64_t chunks : {1, 2}) {
    const PipelineShape shape{.stages = 8, .micro_batches = 20, .pipelines = 4, .chunks = chunks};
    const SearchLayout layout = make_search_layout(PlacementKind::Bidirectional, shape);
    EXPECT_EQ(layout.placement, chimera(shape).placement);
    EXPECT_EQ(layout.micro_batches, micro_batches_of_replicas(chimera(shape)));
  }
}

TEST(LayoutTest, RefusesShapesBeforeItAllocates) {
  const std::int64_t huge = 1'000'000'000'000;
  for (const PlacementKind kind :
       {PlacementKind::Linear, PlacementKind::Bidirectional, PlacementKind::Loop, PlacementKind::Wave}) {
    EXPECT_THROW((void)make_search_layout(kind, {.stages = 0, .micro_batches = 4}), ConfigError);
    EXPECT_THROW((void)make_search_layout(kind, {.stages = 4, .micro_batches = -1}), ConfigError);
    EXPECT_THROW((void)make_search_layout(kind, {.stages = 4, .micro_batches = huge}), ConfigError);
    EXPECT_THROW((void)make_search_layout(kind, {.stages = huge, .micro_batches = huge}), ConfigError);
  }
  EXPECT_THROW((void)make_search_layout(PlacementKind::Loop, {.stages = 4, .micro_batches = 4, .chunks = huge}),
               ConfigError);
  EXPECT_THROW(
      (void)make_search_layout(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 4, .chunks = huge}),
      ConfigError);
  EXPECT_THROW((void)make_search_layout(PlacementKind::Wave, {.stages = 4, .micro_batches = 4, .waves = huge}),
               ConfigError);
  EXPECT_THROW((void)make_search_layout(PlacementKind::Wave, {.stages = 4, .micro_batches = 4, .waves = 0}),
               ConfigError);
  EXPECT_THROW((void)make_search_layout(PlacementKind::Bidirectional, {.stages = 5, .micro_batches = 4}), ConfigError);
}

}  // namespace
}  // namespace chimera
