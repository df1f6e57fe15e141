// GPT-2-64 on hundreds of workers, on paper: Chimera beside other schedules, each at its own best configuration.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
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

const std::vector<std::string>& schedules() {
  static const std::vector<std::string> names = {"chimera", "gpipe", "1f1b", "gems", "pipedream", "pipedream-2bw"};
  return names;
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
std::optional<std::pair<PlanProblem, RankedCandidate>> best(const Options& options, const std::string& schedule,
                                                            std::int64_t workers) {
  PlanOptions plan_options{
      .schedules = {schedule}, .partition = {PartitionRule::Even}, .recompute_all = options.recompute_all, .top = 1};
  try {
    Predictor predictor(problem_of(options, workers, workers));
    const Plan plan = make_plan(predictor, plan_options);
    return std::pair(predictor.problem(), plan.ranked.front());
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

void print_scale(const Options& options, std::int64_t workers) {
  fmt::print("\n{} workers, mini-batch {}\n{:<14} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}\n", workers, workers,
             "schedule", "W x D", "N x b", "recompute", "s/step", "seq/s", "GB", "ratio");
  double chimera = 0;
  for (const std::string& schedule : schedules()) {
    const auto found = best(options, schedule, workers);
    if (!found) {
      fmt::print("{:<14} does not fit\n", schedule);
      continue;
    }
    const auto& [candidate, prediction] = found->second;
    if (chimera == 0) chimera = prediction.sequences_per_second;
    fmt::print(
        "{:<14} {:>10} {:>10} {:>10} {:>10.3f} {:>8.1f} {:>8.2f} {:>7.2f}\n",
        schedule == "chimera" ? schedule + " " + shape_axis(Axis::Scale).text(candidate.shape).substr(0, 6) : schedule,
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
        "{} with sequences of {}; `ratio`: Chimera's throughput over the schedule's; the paper has 1.16 over "
        "pipedream-2bw and 2.34 over gems on 2048 nodes\n",
        options.model, options.sequence);
    for (const std::int64_t workers : options.workers) chimera::print_scale(options, workers);
  } catch (const std::exception& error) {
    fmt::print(stderr, "scale: {}\n", error.what());
    return 2;
  }
  return 0;
}
