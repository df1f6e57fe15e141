#include "search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generate/registry.h"
#include "search/list_scheduling.h"
#include "search/problems.h"

namespace chimera {
namespace {

using testing::alike;
using testing::eight_stages;
using testing::split;

SearchResult search_for(const SearchProblem& problem, std::int64_t iterations, std::uint64_t seed = 1) {
  SearchOptions options;
  options.seconds.reset();
  options.iterations = iterations;
  options.seed = seed;
  const SearchResult result = search(problem, {}, options);
  testing::expect_sound(problem, result.schedule, result.makespan);
  EXPECT_LE(result.lower_bound, result.makespan);
  EXPECT_NEAR(result.gap, result.makespan / result.lower_bound - 1, 1e-12);
  EXPECT_DOUBLE_EQ(result.peak_in_flight, testing::peak_units(result.schedule));
  return result;
}

// The required figures, reached here with up to 200,000 schedules (about a second).
TEST(SearchTest, BeatsTheBestKnownOrders) {
  EXPECT_LE(search_for(eight_stages(16, 2, 0.1), 150'000).makespan, 53.5);
  EXPECT_LE(search_for(eight_stages(8, 2, 0.1), 50'000).makespan, 29.6);
  EXPECT_LE(search_for(eight_stages(8, 2, 0.3), 50'000).makespan, 32.7);
  EXPECT_LE(search_for(eight_stages(8, 4, 0.1), 50'000).makespan, 26.3);
  EXPECT_LE(search_for(eight_stages(8, 4, 0.3), 50'000).makespan, 28.2);
}

TEST(SearchTest, UnequalStagesAreBoundedByTheirBusiestWorkers) {
  SearchProblem problem = eight_stages(16, 2, 0.1);
  const auto scale = [&](std::size_t stage, double by) {
    for (double* cost : {&problem.costs.stages[stage].forward, &problem.costs.stages[stage].input_gradient,
                         &problem.costs.stages[stage].weight_gradient})
      *cost *= by;
  };
  scale(0, 1.5);
  scale(7, 2);
  const SearchResult result = search_for(problem, 20'000);
  EXPECT_DOUBLE_EQ(result.makespan, 84);
  EXPECT_DOUBLE_EQ(result.gap, 0);
}

TEST(SearchTest, TheSameSeedGivesTheSameSchedule) {
  const auto run = [](std::uint64_t seed) { return search_for(eight_stages(16, 2, 0.1), 5'000, seed); };
  const SearchResult once = run(3);
  const SearchResult again = run(3);
  EXPECT_EQ(once.schedule, again.schedule);
  EXPECT_EQ(once.origin, again.origin);
  EXPECT_EQ(once.pareto.size(), again.pareto.size());
  EXPECT_NE(once.schedule, run(4).schedule);
}

TEST(SearchTest, HasAResultWithoutTime) {
  SearchOptions options;
  options.seconds = 0;
  const SearchProblem problem = eight_stages(16, 2, 0.1);
  const SearchResult result = search(problem, {}, options);
  testing::expect_sound(problem, result.schedule, result.makespan);
  EXPECT_EQ(result.origin, "list scheduling");
}

TEST(SearchTest, NeverReturnsWorseThanAStartAndNamesIt) {
  const PipelineShape shape{.stages = 8, .micro_batches = 16};
  const SearchProblem problem = eight_stages(16, 2, 0.1);
  const auto starts = generated_starts(problem.layout, shape);
  SearchOptions options;
  options.seconds = 0;
  const SearchResult result = search(problem, starts, options);
  EXPECT_NEAR(result.makespan, 54.2, 1e-9) << "DualPipe's order needs 54.7 with its whole backwards in one piece";
  EXPECT_EQ(result.origin, "dualpipe");
  options.seconds.reset();
  options.iterations = 20'000;
  EXPECT_THAT(search(problem, starts, options).origin, ::testing::StartsWith("local search from "));
}

TEST(SearchTest, OrdersSlicesNoWorseThanAnyGenerator) {
  SearchOptions options{.seconds = std::nullopt, .iterations = 3000, .wants_front = false};
  for (const std::int64_t slices : {2, 4}) {
    for (const PlacementKind kind : {PlacementKind::Linear, PlacementKind::Bidirectional, PlacementKind::Rotated}) {
      const PipelineShape shape{.stages = 4, .micro_batches = 4, .slices = slices};
      const SearchProblem problem = alike(kind, shape, split(1, 1.3, 0.7), 0.05);
      const auto starts = generated_starts(problem.layout, shape);
      ASSERT_FALSE(starts.empty());
      const SearchResult found = search(problem, starts, options);
      testing::expect_sound(problem, found.schedule, found.makespan);
      EXPECT_EQ(found.schedule.slices, slices);
      EXPECT_LE(found.lower_bound, found.makespan);
      for (const Schedule& start : starts)
        EXPECT_LE(found.makespan, simulate(start, problem.costs).makespan + 1e-9) << start.name;
    }
  }
}

TEST(SearchTest, SlicesSaveMemory) {
  const PipelineShape shape{.stages = 4, .micro_batches = 4, .slices = 4};
  const SearchProblem problem = alike(PlacementKind::Linear, shape, split(1, 1, 1), 0, 1.75);
  const SearchResult found = search_for(problem, 3000);
  testing::expect_sound(problem, found.schedule, found.makespan);
  EXPECT_LE(found.peak_in_flight, 1.75) << "less than two micro-batches, where whole ones allow a single one";
  // Keys and values count, and slices count as the longest of a half and two quarters.
  const SearchLayout layout = make_search_layout(PlacementKind::Linear, {.stages = 1, .micro_batches = 1, .slices = 3});
  CostModel costs;
  costs.memory.assign(1, {.activations = 10, .keys_and_values = 2});
  costs.slices.bounds = {0, 0.5, 0.75, 1};
  EXPECT_DOUBLE_EQ(limit_memory(layout, 100, costs, "--memory").size_of_stage[0], 3 * 0.5 * 12);
}

TEST(SearchTest, StartsAreTheGeneratedSchedulesThatFit) {
  const auto names = [](PlacementKind kind, const PipelineShape& shape) {
    std::vector<std::string> found;
    for (const Schedule& start : generated_starts(make_search_layout(kind, shape), shape)) found.push_back(start.name);
    return found;
  };
  using ::testing::Contains;
  using ::testing::Not;
  const PipelineShape shape{.stages = 4, .micro_batches = 8};
  EXPECT_THAT(names(PlacementKind::Linear, shape), Contains("1f1b"));
  EXPECT_THAT(names(PlacementKind::Linear, shape), Not(Contains("chimera")));
  EXPECT_THAT(names(PlacementKind::Linear, shape), Not(Contains("pipedream")));
  EXPECT_THAT(names(PlacementKind::Bidirectional, shape), Contains("chimera (doubling)"));
  EXPECT_THAT(names(PlacementKind::Bidirectional, shape), Contains("dualpipe"));
  EXPECT_THAT(names(PlacementKind::Wave, shape), Contains("zb-v"));
}

TEST(SearchTest, ProvesTheOptimumOfSmallProblems) {
  // The bound N(F+I+W) + (D/2-1)F is reached at equal costs.
  const SearchResult bound =
      search_for(alike(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 4}, split(1, 1, 1)), 20'000);
  EXPECT_DOUBLE_EQ(bound.makespan, 13);
  EXPECT_DOUBLE_EQ(bound.gap, 0);
  // No bound is reached here: exact search proves that nothing is faster.
  const SearchProblem problem = testing::by_chance(PlacementKind::Linear, {.stages = 3, .micro_batches = 2}, true, 5);
  const SearchResult exact = search_for(problem, 200'000);
  EXPECT_DOUBLE_EQ(exact.gap, 0);
  EXPECT_NEAR(exact.makespan, testing::EveryOrder(problem).shortest_makespan(), 1e-9);
}

// Two replicas that cross a link in opposite directions are alike only if both directions are equal.
TEST(SearchTest, UnequalLinksDistinguishReplicas) {
  SearchProblem problem = alike(PlacementKind::Bidirectional, {.stages = 2, .micro_batches = 2}, split(1, 1.5, 0.5));
  problem.costs.links = LinkCosts{.matrix = LinkMatrix{{{0, 0.25}, {2, 0}}, {}}};
  const SearchResult result = search_for(problem, 200'000);
  EXPECT_DOUBLE_EQ(result.gap, 0);
  EXPECT_NEAR(result.makespan, testing::EveryOrder(problem).shortest_makespan(), 1e-9);
}

TEST(SearchTest, TheParetoFrontTradesTimeForMemory) {
  const SearchResult result = search_for(eight_stages(8, 2, 0.1), 20'000);
  ASSERT_GT(result.pareto.size(), 4U);
  EXPECT_DOUBLE_EQ(result.pareto.front().makespan, result.makespan);
  EXPECT_DOUBLE_EQ(result.pareto.front().peak_in_flight, result.peak_in_flight);
  EXPECT_DOUBLE_EQ(result.pareto.back().peak_in_flight, 1) << "one micro-batch after the other";
  for (std::size_t i = 1; i < result.pareto.size(); ++i) {
    EXPECT_GT(result.pareto[i].makespan, result.pareto[i - 1].makespan);
    EXPECT_LT(result.pareto[i].peak_in_flight, result.pareto[i - 1].peak_in_flight);
  }
}

TEST(SearchTest, RefusesInvalidProblems) {
  SearchProblem problem = eight_stages(8, 2, 0.1);
  problem.limits = {limit_in_flight(problem.layout, 0.9, "--max-in-flight")};
  EXPECT_THROW((void)search(problem, {}, {}), ConfigError);
  problem = eight_stages(8, 2, 0.1);
  problem.costs.stages.pop_back();
  EXPECT_THROW((void)search(problem, {}, {}), ConfigError);
  problem = eight_stages(8, 2, 1e308);
  EXPECT_THROW((void)search(problem, {}, {}), ConfigError);
  problem = eight_stages(8, 2, -1);
  EXPECT_THROW((void)search(problem, {}, {}), ConfigError);
}

TEST(SearchTest, TakesFreeOpsAndEmptyReplicas) {
  (void)search_for(alike(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 4}, split(0, 1, 0)), 2'000);
  (void)search_for(alike(PlacementKind::Bidirectional, {.stages = 4, .micro_batches = 1}, split(1, 1, 1)), 2'000);
  (void)search_for(alike(PlacementKind::Linear, {.stages = 1, .micro_batches = 1}, split(1, 1, 1)), 2'000);
  SearchOptions options;
  options.iterations = 2'000;
  const SearchProblem nothing = alike(PlacementKind::Wave, {.stages = 2, .micro_batches = 3}, split(0, 0, 0));
  const SearchResult result = search(nothing, {}, options);
  EXPECT_EQ(result.makespan, 0);
  EXPECT_EQ(result.gap, 0);
}

TEST(SearchTest, ReportsItsProgress) {
  std::vector<SearchProgress> told;
  SearchOptions options;
  options.iterations = 2'000;
  options.progress = [&](const SearchProgress& progress) { told.push_back(progress); };
  const SearchResult result = search(eight_stages(8, 2, 0.1), {}, options);
  ASSERT_FALSE(told.empty());
  for (std::size_t i = 1; i < told.size(); ++i) EXPECT_LE(told[i].makespan, told[i - 1].makespan);
  EXPECT_NEAR(told.back().makespan, result.makespan, 1e-9);
}

// The fast simulator of the search agrees with simulate(), and the bound holds for every order.
TEST(SearchTest, FollowsSlowWorkersAndUnequalMicroBatches) {
  const PipelineShape shape{.stages = 2, .micro_batches = 2};
  SearchProblem problem = alike(PlacementKind::Bidirectional, shape, split(1, 1, 1), 0.1);
  problem.costs.workers = {1, 1.5};
  problem.costs.micro_batches = {1.5, 0.5};
  const SearchResult found = search_for(problem, 3000);
  testing::expect_sound(problem, found.schedule, found.makespan);
  const double best = testing::EveryOrder(problem).shortest_makespan();
  EXPECT_LE(found.lower_bound, best + 1e-9);
  EXPECT_NEAR(found.makespan, best, 1e-9);
  const Instance instance = make_instance(problem);
  EXPECT_NEAR(Evaluator(instance).makespan(to_orders(problem, found.schedule)), found.makespan, 1e-9);
}

}  // namespace
}  // namespace chimera
