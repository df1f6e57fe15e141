// Makespans of the schedules that the search finds, compared with their targets.

#include "search/search.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine_line.h"
#include "search/instance.h"
#include "search/list_scheduling.h"

namespace chimera::benchmarks {
namespace {

/// All cases: D = 8, two or four replicas, at most 9 stage units per worker.
struct Case {
  std::string name;
  double target = 0;
  std::int64_t micro_batches = 16;
  std::int64_t pipelines = 2;
  double latency = 0.1;
  std::function<double(std::size_t)> weight_of_stage = [](std::size_t) { return 1.0; };
  bool split_backward = true;
};

std::vector<Case> cases() {
  return {
      {"two replicas, N = 16", 53.5},
      {"two replicas, N = 32", 102, 32},
      {"two replicas, N = 8", 29.6, 8},
      {"two replicas, N = 8, latency 0.3", 32.7, 8, 2, 0.3},
      {"four replicas, N = 8", 26.3, 8, 4},
      {"four replicas, N = 8, latency 0.3", 28.2, 8, 4, 0.3},
      {"stage s costs 0.65 + 0.1 s", 54.2, 16, 2, 0.1,
       [](std::size_t s) { return 0.65 + 0.1 * static_cast<double>(s); }},
      {"first stage costs 1.5, last 2", 84, 16, 2, 0.1,
       [](std::size_t s) { return s == 0   ? 1.5
                                  : s == 7 ? 2.0
                                           : 1.0; }},
      {"whole backward 2, no latency", 60, 16, 2, 0, [](std::size_t) { return 1.0; }, false},
  };
}

SearchProblem problem_of(const Case& asked, const SearchLayout& layout) {
  CostModel costs;
  costs.latency = asked.latency;
  for (std::size_t s = 0; s < static_cast<std::size_t>(layout.stages); ++s) {
    const double weight = asked.weight_of_stage(s);
    costs.stages.push_back({weight, 2 * weight, 1.3 * weight, 0.7 * weight});
  }
  return {layout, costs, asked.split_backward, {limit_in_flight(layout, 9, "--max-in-flight")}};
}

void run_case(const Case& asked, const SearchOptions& options) {
  const PipelineShape shape{.stages = 8, .micro_batches = asked.micro_batches, .pipelines = asked.pipelines};
  const SearchLayout layout = make_search_layout(PlacementKind::Bidirectional, shape);
  std::optional<double> met;
  SearchOptions watched = options;
  watched.progress = [&](const SearchProgress& progress) {
    if (!met && progress.makespan <= asked.target + 1e-9) met = progress.seconds;
  };
  const SearchResult result = search(problem_of(asked, layout), generated_starts(layout, shape), watched);
  const std::string when = met ? fmt::format("{:.2f}", *met) : "not";
  fmt::print("{:<34} {:>7.5g} {:>8.6g} {:>8.6g} {:>6.2f} % {:>5.3g} {:>8}  {}\n", asked.name, asked.target,
             result.makespan, result.lower_bound, 100 * result.gap, result.peak_in_flight, when, result.origin);
  std::fflush(stdout);
}

void run_all(const SearchOptions& options) {
  fmt::print("Schedules found for D = 8, (F, I, W) = (1, 1.3, 0.7), latency 0.1, at most 9 stage units a worker\n");
  fmt::print("{}\n", machine_line());
  fmt::print("{:<34} {:>7} {:>8} {:>8} {:>8} {:>5} {:>8}  {}\n", "case", "asked", "found", "bound", "gap", "peak",
             "met at s", "found by");
  for (const Case& asked : cases()) run_case(asked, options);
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  CLI::App app("Schedules that the search finds, beside what is asked of it", "search");
  chimera::SearchOptions options;
  options.seconds = 20;
  app.add_option("--seconds", options.seconds, "for each case (default 20)");
  app.add_option("--iterations", options.iterations, "schedules timed for each case, beside --seconds");
  app.add_option("--seed", options.seed, "of the chances that the search takes (default 0)");
  CLI11_PARSE(app, argc, argv);
  try {
    chimera::benchmarks::run_all(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "search: {}\n", error.what());
    return 1;
  }
}
