// Problems solved by an independent solver: tests/search/solve_orders.py.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "search/list_scheduling.h"
#include "search/makespan_bound.h"
#include "search/problems.h"
#include "support/paths.h"

namespace chimera {
namespace {

struct Solved {
  std::string name;
  PipelineShape shape;
  SearchProblem problem;
  double makespan = 0;
};

PlacementKind kind_of(const std::string& placement) {
  if (placement == "linear") return PlacementKind::Linear;
  return placement == "wave" ? PlacementKind::Wave : PlacementKind::Bidirectional;
}

std::vector<Solved> solved_problems() {
  std::ifstream file(testing::source_path("/tests/fixtures/solved_orders.json"));
  std::vector<Solved> all;
  for (const auto& each : nlohmann::json::parse(file)) {
    Solved& solved = all.emplace_back();
    solved.name = json_text(each);
    solved.shape = {.stages = each.at("stages"), .micro_batches = each.at("micro_batches")};
    solved.makespan = each.at("makespan");
    SearchProblem& problem = solved.problem;
    problem.layout = make_search_layout(kind_of(each.at("placement")), solved.shape);
    problem.costs.latency = each.at("latency");
    for (const auto& costs : each.at("costs")) {
      const auto [forward, input, weight] = costs.get<std::array<double, 3>>();
      problem.costs.stages.push_back({forward, input + weight, input, weight});
    }
    const double units = each.at("room").get<double>() * units_of_stage(problem.layout);
    problem.limits = {limit_in_flight(problem.layout, units, "--max-in-flight")};
  }
  return all;
}

TEST(SolvedOrdersTest, NoBoundIsAboveTheOptimum) {
  const auto problems = solved_problems();
  ASSERT_GE(problems.size(), 20U);
  for (const Solved& solved : problems) {
    const Instance instance = make_instance(solved.problem);
    const double bound = least_makespan(instance);
    EXPECT_LE(bound, solved.makespan + 1e-6) << solved.name;
    Budget budget(std::nullopt, 100 * kTimedForAState);
    EXPECT_LE(raise_bound(instance, bound, solved.makespan + 1, Phase(budget)).bound, solved.makespan + 1e-6)
        << solved.name;
  }
}

TEST(SolvedOrdersTest, SearchNeverBeatsTheOptimumAndProvesNothingElse) {
  std::size_t found = 0;
  const auto problems = solved_problems();
  for (const Solved& solved : problems) {
    SearchOptions options;
    options.seconds.reset();
    options.iterations = 20'000;
    const SearchResult result = search(solved.problem, generated_starts(solved.problem.layout, solved.shape), options);
    EXPECT_GE(result.makespan, solved.makespan - 1e-6) << solved.name;
    EXPECT_LE(result.lower_bound, solved.makespan + 1e-6) << solved.name;
    if (result.gap == 0) ++found;
  }
  EXPECT_GE(2 * found, problems.size()) << "proven";
}

}  // namespace
}  // namespace chimera
