#include "search/placements.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "search/list_scheduling.h"
#include "search/problems.h"

namespace chimera {
namespace {

/// Search options with an iteration budget and no time limit.
SearchOptions schedules_timed(std::int64_t iterations) {
  SearchOptions options;
  options.seconds.reset();
  options.iterations = iterations;
  options.seed = 1;
  return options;
}

std::vector<Schedule> no_starts(std::size_t) { return {}; }

/// Problems with the same costs on every layout of the shape.
std::vector<SearchProblem> problems_of(const PipelineShape& shape, const std::vector<StageCosts>& stages,
                                       double latency) {
  std::vector<SearchProblem> problems;
  for (SearchLayout& layout : all_layouts(shape)) {
    SearchProblem problem;
    problem.layout = std::move(layout);
    problem.costs.stages = stages;
    problem.costs.latency = latency;
    problems.push_back(std::move(problem));
  }
  return problems;
}

// With two replicas and one stage per worker, the first replica may have stage s on worker s, the second any
// permutation. A permutation and its inverse are one placement with the replicas exchanged: (D! + involutions) / 2.
// With one replica and v stages per worker: (v D)! / (v!^D D!) partitions.
TEST(PlacementsTest, AreDistinctUpToRenaming) {
  EXPECT_EQ(all_layouts({.stages = 3, .micro_batches = 4}).size(), (6 + 4) / 2);
  EXPECT_EQ(all_layouts({.stages = 4, .micro_batches = 4}).size(), (24 + 10) / 2);
  EXPECT_EQ(all_layouts({.stages = 4, .micro_batches = 5}).size(), 24) << "replicas of 3 and 2 micro-batches differ";
  EXPECT_EQ(all_layouts({.stages = 4, .micro_batches = 4, .pipelines = 1}).size(), 1);
  EXPECT_EQ(all_layouts({.stages = 3, .micro_batches = 4, .pipelines = 1, .chunks = 2}).size(), 15);
  EXPECT_EQ(all_layouts({.stages = 4, .micro_batches = 4, .pipelines = 1, .chunks = 2}).size(), 105);
}

TEST(PlacementsTest, IncludeChimerasPlacement) {
  const SearchLayout chimeras = make_search_layout(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 4});
  const auto all = all_layouts({.stages = 4, .micro_batches = 4});
  EXPECT_TRUE(std::ranges::any_of(all, [&](const SearchLayout& each) { return each.placement == chimeras.placement; }));
}

TEST(PlacementsTest, RefusesTooManyOrNone) {
  EXPECT_THROW((void)all_layouts({.stages = 8, .micro_batches = 8}), ConfigError);
  EXPECT_THROW((void)all_layouts({.stages = 2, .micro_batches = 1}), ConfigError) << "a replica without work";
  EXPECT_THROW((void)all_layouts({.stages = 0, .micro_batches = 1}), ConfigError);
}

TEST(PlacementsTest, AreNotSearchedIfLinksDiffer) {
  auto problems = problems_of({.stages = 2, .micro_batches = 2}, {{1, 2, 1, 1}, {1, 2, 1, 1}}, 0);
  for (SearchProblem& problem : problems) problem.costs.links = LinkCosts{.matrix = LinkMatrix{{{0, 1}, {2, 0}}, {}}};
  EXPECT_THROW(require_equal_links(problems), ConfigError);
}

// With equal stages, Chimera's placement at N = D = 4 is optimal: it meets the bound.
TEST(PlacementsTest, TheBestIsAtLeastAsFastAsChimera) {
  const std::vector<StageCosts> stages = {{1, 2, 1.2, 0.8}, {1.3, 2, 1, 1}, {0.7, 2, 1, 0.6}, {1.6, 2, 1.9, 1.1}};
  const auto problems = problems_of({.stages = 4, .micro_batches = 4}, stages, 0.2);
  const PlacementSearch found = search_placements(problems, no_starts, schedules_timed(60'000));
  testing::expect_sound(problems[found.best], found.result.schedule, found.result.makespan);
  EXPECT_LE(found.result.lower_bound, found.result.makespan);
  for (const SearchProblem& problem : problems) {
    const SearchResult alone = search(problem, {}, schedules_timed(3'000));
    EXPECT_LE(found.result.makespan, alone.makespan * (1 + 1e-9));
    EXPECT_LE(found.result.lower_bound, alone.makespan * (1 + 1e-9)) << "the bound holds on every placement";
  }
}

TEST(PlacementsTest, ProvesTheBestOfThemAll) {
  const auto problems = problems_of({.stages = 2, .micro_batches = 2}, {{1, 2, 1, 1}, {1.2, 2.4, 1.2, 1.2}}, 0.1);
  ASSERT_EQ(problems.size(), 2);
  const PlacementSearch found = search_placements(problems, no_starts, schedules_timed(200'000));
  EXPECT_EQ(found.result.gap, 0);
  const double other = search(problems[1 - found.best], {}, schedules_timed(50'000)).makespan;
  EXPECT_LE(found.result.makespan, other);
}

TEST(PlacementsTest, OmitsPlacementsThatExceedTheMemory) {
  auto problems = problems_of({.stages = 2, .micro_batches = 2}, {{1, 2, 1, 1}, {1, 2, 1, 1}}, 0);
  for (SearchProblem& problem : problems) problem.limits.push_back({"--room", {1, 1}, {0, 0}});
  EXPECT_THROW((void)search_placements(problems, no_starts, schedules_timed(100)), ConfigError);
  problems[1].limits.clear();
  EXPECT_EQ(search_placements(problems, no_starts, schedules_timed(1'000)).best, 1);
}

TEST(PlacementsTest, TheSameSeedGivesTheSameSchedule) {
  const auto problems = problems_of({.stages = 3, .micro_batches = 4}, std::vector<StageCosts>(3), 0.1);
  const auto run = [&] { return search_placements(problems, no_starts, schedules_timed(5'000)); };
  EXPECT_EQ(run().result.schedule, run().result.schedule);
}

}  // namespace
}  // namespace chimera
