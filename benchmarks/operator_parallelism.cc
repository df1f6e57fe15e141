// Pipelines compared with operator parallelism: the fastest plan for each T, on a slow network and on fast links.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "plan/compare_models.h"
#include "plan/plan.h"

namespace chimera {
namespace {

struct Case {
  std::string machine;
  std::string model;
  std::int64_t sequence = 0;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
};

struct Row {
  RankedCandidate best;
  StepParts parts;
};

std::vector<Case> cases() {
  return {{"p100-aries", "bert-48", 128, 32, 512},
          {"v100-nvlink", "bert-48", 512, 32, 128},
          {"v100-nvlink", "bert-48", 512, 8, 8},
          {"h200", "gpt2-64", 632, 8, 8}};
}

/// The fastest plan with that T; empty if no plan fits.
std::optional<Row> best(const Case& asked, std::int64_t tensor_parallel) {
  PlanProblem problem;
  problem.model = find_model(asked.model);
  problem.machine = read_machine("machines/" + asked.machine + ".json");
  problem.workers = asked.workers;
  problem.mini_batch = asked.mini_batch;
  problem.memory_bytes = problem.machine.memory_bytes;
  problem.workload.sequence = asked.sequence;
  PlanOptions options{.schedules = {"chimera", "1f1b", "chimera-zb"}, .partition = {PartitionRule::Even}, .top = 1};
  options.given.tensor_parallel = {tensor_parallel};
  try {
    Predictor predictor(problem);
    Row row{make_plan(predictor, options).ranked.front(), {}};
    row.parts = step_parts(predictor, row.best.candidate);
    return row;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// The parts of a step, one letter for each fiftieth of `longest`.
std::string bar(const StepParts& parts, double longest) {
  constexpr double kLetters = 50;
  const std::string letters = "cr.tmsu";  // in the order of StepPart
  std::string text;
  double until = 0;
  for (std::size_t part = 0; part < kStepParts; ++part) {
    until += std::max(0.0, parts.seconds[part]);
    const auto length = static_cast<std::size_t>(std::llround(kLetters * until / longest));
    if (length > text.size()) text.append(length - text.size(), letters[part]);
  }
  return text;
}

void print_case(const Case& asked) {
  std::vector<std::pair<std::int64_t, Row>> rows;
  double longest = 0;
  for (std::int64_t t = 1; t <= asked.workers; t *= 2) {
    if (const auto row = best(asked, t)) {
      rows.emplace_back(t, *row);
      longest = std::max(longest, row->best.prediction.step_seconds);
    }
  }
  fmt::print("\n{}, sequences of {}, mini-batch {}, {} workers of {}\n", asked.model, asked.sequence, asked.mini_batch,
             asked.workers, asked.machine);
  for (const auto& [t, row] : rows) {
    const auto& [candidate, prediction] = row.best;
    fmt::print("T {:<3} {:<11} W {:<3} D {:<3} N {:<3} b {:<3} {:>8.4g} s  {}\n", t, candidate.schedule,
               candidate.data_parallel, candidate.shape.stages, candidate.shape.micro_batches,
               candidate.micro_batch_size, prediction.step_seconds, bar(row.parts, longest));
  }
}

}  // namespace
}  // namespace chimera

int main(int argc, char** argv) {
  CLI::App app("Pipelines beside operator parallelism, by simulation", "operator_parallelism");
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print(
        "The fastest plan for each T. c compute, r recomputation, . bubble, t sums within ops over the T workers, m "
        "exposed messages, s exposed sums of gradients, u updates\n");
    for (const chimera::Case& each : chimera::cases()) chimera::print_case(each);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "operator_parallelism: {}\n", error.what());
    return 1;
  }
}
