// For random costs: how often the search proves its schedule optimal, and the gap to its bound in the other cases.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "bench/machine_line.h"
#include "core/random.h"
#include "search/instance.h"
#include "search/list_scheduling.h"
#include "search/search.h"

namespace chimera::benchmarks {
namespace {

struct Options {
  std::int64_t count = 100;
  std::uint64_t seed = 0;
  SearchOptions search;
  bool large = false;
};

/// A random problem: two replicas on D = 2 to 8 workers, N from D to 2D, at most D stage units per worker. Stages
/// differ by up to 20 %, and F, I and W from (1, 1.15, 0.85) by up to 15 %. The latency is at most 0.3.
struct RandomCase {
  PipelineShape shape;
  CostModel costs;
};

RandomCase random_case(std::uint64_t seed, std::uint64_t number) {
  const CounterRandom random(seed, fmt::format("case {}", number));
  std::uint64_t drawn = 0;
  const auto between = [&](double least, double most) {
    constexpr std::uint64_t kSteps = 1 << 20;
    return least + (most - least) * static_cast<double>(random.below(drawn++, kSteps)) / kSteps;
  };
  const auto depth = static_cast<std::int64_t>(2 * (1 + random.below(drawn++, 4)));
  const auto more = static_cast<std::int64_t>(random.below(drawn++, static_cast<std::uint64_t>(depth + 1)));
  RandomCase found{{.stages = depth, .micro_batches = depth + more}, {}};
  const double input = between(1, 1.3);
  found.costs.latency = between(0, 0.3);
  for (std::int64_t s = 0; s < depth; ++s) {
    const double weight = between(0.8, 1.2);
    found.costs.stages.push_back({weight, 2 * weight, input * weight, (2 - input) * weight});
  }
  return found;
}

SearchResult run(const RandomCase& each, const SearchOptions& options) {
  const SearchLayout layout = make_search_layout(PlacementKind::Bidirectional, each.shape);
  const auto units = static_cast<double>(each.shape.stages);
  const SearchProblem problem{layout, each.costs, true, {limit_in_flight(layout, units, "--max-in-flight")}};
  return search(problem, generated_starts(layout, each.shape), options);
}

void run_all(const Options& options) {
  fmt::print("{}\n", machine_line());
  fmt::print("{:>4} {:>3} {:>3} {:>8} {:>9} {:>9} {:>8} {:>7}  {}\n", "case", "D", "N", "latency", "found", "bound",
             "gap", "s", "found by");
  std::int64_t proven = 0;
  double gaps = 0;
  for (std::int64_t number = 0; number < options.count; ++number) {
    const RandomCase each = random_case(options.seed, static_cast<std::uint64_t>(number));
    double seconds = 0;
    SearchOptions watched = options.search;
    watched.progress = [&](const SearchProgress& progress) { seconds = progress.seconds; };
    const SearchResult result = run(each, watched);
    proven += result.gap == 0 ? 1 : 0;
    gaps += result.gap;
    fmt::print("{:>4} {:>3} {:>3} {:>8.3f} {:>9.5g} {:>9.5g} {:>6.2f} % {:>7.2f}  {}\n", number, each.shape.stages,
               each.shape.micro_batches, each.costs.latency, result.makespan, result.lower_bound, 100 * result.gap,
               seconds, result.origin);
    std::fflush(stdout);
  }
  const std::int64_t others = options.count - proven;
  fmt::print("proven optimal: {} of {}; mean gap of the other {}: {:.2f} %\n", proven, options.count, others,
             others > 0 ? 100 * gaps / static_cast<double>(others) : 0);
}

/// D = 16, N = 32 at equal costs.
void run_large(const Options& options) {
  const RandomCase each{{.stages = 16, .micro_batches = 32},
                        {.stages = std::vector<StageCosts>(16, StageCosts{1, 2, 1, 1}), .latency = 0.1}};
  const SearchResult result = run(each, options.search);
  fmt::print("{}\nD = 16, N = 32, F = I = W = 1, latency 0.1: found {:.6g}, bound {:.6g}, gap {:.2f} %, by {}\n",
             machine_line(), result.makespan, result.lower_bound, 100 * result.gap, result.origin);
}

}  // namespace
}  // namespace chimera::benchmarks

int main(int argc, char** argv) {
  CLI::App app("How often the search proves its schedule optimal", "proofs");
  chimera::benchmarks::Options options;
  options.search.seconds = 60;
  options.search.wants_front = false;
  app.add_option("--count", options.count, "random problems (default 100)");
  app.add_option("--seconds", options.search.seconds, "for each problem (default 60)");
  app.add_option("--seed", options.seed, "of the problems (default 0)");
  app.add_flag("--large", options.large, "one problem instead: D = 16, N = 32 at equal costs, latency 0.1");
  CLI11_PARSE(app, argc, argv);
  try {
    options.large ? run_large(options) : run_all(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "proofs: {}\n", error.what());
    return 1;
  }
}
