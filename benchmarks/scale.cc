// GPT-2-64 on hundreds of workers, on paper: Chimera beside other schedules, each at its own best configuration.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"
#include "generate/shape_axis.h"
#include "plan/plan.h"

namespace chimera {
namespace {

struct Options {
  std::string machine = "machines/p100-aries.json";
  std::string model = "gpt2-64";
  std::int64_t sequence = 632;
  std::vector<std::int64_t> workers = {512, 1024, 2048};
  double memory = 16e9;
  bool blocking_sends = false;
  bool recompute_all = false;
};

/// A line of the table: what is planned, and what of it is given.
struct Line {
  std::string name;
  std::string schedule;
  std::vector<std::int64_t> pipelines = {};  // 2f
};

/// First what the paper compares, Chimera with f = 1; then the best of Chimera's other shapes.
const std::vector<Line>& lines() {
  static const std::vector<Line> all = {{"chimera, f = 1", "chimera", {2}},
                                        {"gpipe", "gpipe"},
                                        {"1f1b", "1f1b"},
                                        {"gems", "gems"},
                                        {"pipedream", "pipedream"},
                                        {"pipedream-2bw", "pipedream-2bw"},
                                        {"chimera, any f", "chimera"},
                                        {"chimera-zb", "chimera-zb"}};
  return all;
}

PlanProblem problem_of(const Options& options, std::int64_t workers, std::int64_t mini_batch) {
  PlanProblem problem;
  problem.model = find_model(options.model);
  problem.machine = read_machine(options.machine);
  problem.workers = workers;
  problem.mini_batch = mini_batch;
  problem.memory_bytes = options.memory;
  problem.workload.sequence = options.sequence;
  problem.blocking_sends = options.blocking_sends;
  problem.sync = options.blocking_sends ? AllReducePlacement::Post : AllReducePlacement::EagerOpt;
  return problem;
}

/// The fastest of a schedule, with as many sequences a step as there are workers; none where nothing fits. PipeDream
/// updates after every micro-batch, so its mini-batch is what memory admits at once, W b.
std::optional<std::pair<PlanProblem, RankedCandidate>> best(const Options& options, const Line& line,
                                                            std::int64_t workers) {
  PlanOptions plan_options{.schedules = {line.schedule},
                           .given = {.pipelines = line.pipelines},
                           .partition = {PartitionRule::Even},
                           .recompute_all = options.recompute_all,
                           .top = 1};
  try {
    Predictor predictor(problem_of(options, workers, workers));
    const Plan plan = make_plan(predictor, plan_options);
    return std::pair(predictor.problem(), plan.ranked.front());
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// A parameter of the candidate's shape; empty where its schedule does not take it.
std::string value_of(const Candidate& candidate, Axis axis) {
  if (find_axis(find_generator(candidate.schedule), axis) == nullptr) return "";
  return shape_axis(axis).text(candidate.shape);
}

void print_scale(const Options& options, std::int64_t workers) {
  fmt::print("\n{} workers, mini-batch {}\n{:<14} {:>3} {:<8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}\n", workers,
             workers, "schedule", "2f", "N > D", "W x D", "N x b", "recompute", "s/step", "seq/s", "GB", "ratio");
  double chimera = 0;
  for (const Line& line : lines()) {
    const auto found = best(options, line, workers);
    if (!found) {
      fmt::print("{:<14} does not fit\n", line.name);
      continue;
    }
    const auto& [candidate, prediction] = found->second;
    if (chimera == 0) chimera = prediction.sequences_per_second;
    fmt::print("{:<14} {:>3} {:<8} {:>8} {:>10} {:>10} {:>10.3f} {:>8.1f} {:>8.2f} {:>7.2f}\n", line.name,
               value_of(candidate, Axis::Pipelines), value_of(candidate, Axis::Scale),
               fmt::format("{} x {}", candidate.data_parallel, candidate.shape.stages),
               fmt::format("{} x {}", candidate.shape.micro_batches, candidate.micro_batch_size),
               candidate.recompute.empty() ? "none" : fmt::format("{} stages", candidate.recompute.size()),
               prediction.step_seconds, prediction.sequences_per_second, prediction.peak_memory_bytes / 1e9,
               chimera / prediction.sequences_per_second);
  }
}

}  // namespace
}  // namespace chimera

int main(int argc, char** argv) {
  chimera::Options options;
  CLI::App app("GPT-2-64 on 512 to 2,048 workers by simulation");
  app.add_option("--machine", options.machine, "profile (default machines/p100-aries.json)");
  app.add_option("--workers", options.workers, "numbers of workers (default 512, 1024, 2048)")->delimiter(',');
  app.add_flag("--nothing-hidden", options.blocking_sends,
               "workers wait for their messages, and sums start after their last op");
  app.add_flag("--recompute-all", options.recompute_all, "where anything has to be recomputed, all stages are");
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print(
        "{} with sequences of {}; `ratio`: throughput of Chimera with f = 1, as the paper ran it, over the line's; the "
        "paper has 1.16 over "
        "pipedream-2bw and 2.34 over gems on 2048 nodes\n",
        options.model, options.sequence);
    for (const std::int64_t workers : options.workers) chimera::print_scale(options, workers);
  } catch (const std::exception& error) {
    fmt::print(stderr, "scale: {}\n", error.what());
    return 2;
  }
  return 0;
}
