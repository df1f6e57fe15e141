// Simulates GPT-2-64 on hundreds of workers: Chimera and other schedules, each at its best configuration.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "generate/registry.h"
#include "paper/paper_scale.h"

namespace chimera {
namespace {

/// A parameter of the candidate's shape; empty if its schedule has no such parameter.
std::string value_of(const Candidate& candidate, Axis axis) {
  if (find_axis(find_generator(candidate.schedule), axis) == nullptr) return "";
  return shape_axis(axis).text(candidate.shape);
}

void print_scale(const ScaleOptions& options, std::int64_t workers) {
  fmt::print("\n{} workers, mini-batch {}\n{:<14} {:>3} {:<8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}\n", workers,
             workers, "schedule", "2f", "N > D", "W x D", "N x b", "recompute", "s/step", "seq/s", "GB", "ratio");
  double chimera = 0;
  for (const ScaleLine& line : scale_lines()) {
    const auto found = best_at_scale(options, line, workers);
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
  chimera::ScaleOptions options;
  std::vector<std::int64_t> workers = {512, 1024, 2048};
  CLI::App app("GPT-2-64 on 512 to 2,048 workers by simulation");
  app.add_option("--machine", options.machine, "profile (default machines/p100-aries.json)");
  app.add_option("--workers", workers, "numbers of workers (default 512, 1024, 2048)")->delimiter(',');
  app.add_flag("--nothing-hidden", options.blocking_sends,
               "workers wait for their messages, and sums start after their last op");
  app.add_flag("--recompute-all", options.recompute_all, "where anything has to be recomputed, all stages are");
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print(
        "{} with sequences of {}; `ratio`: throughput of Chimera with f = 1, as the paper ran it, over the line's",
        options.model, options.sequence);
    for (const auto& [schedule, ratio] : chimera::paper_ratios()) {
      fmt::print("; the paper has {} over {} on {} nodes", ratio, schedule, chimera::kPaperRatioWorkers);
    }
    fmt::print("\n");
    for (const std::int64_t count : workers) chimera::print_scale(options, count);
  } catch (const std::exception& error) {
    fmt::print(stderr, "scale: {}\n", error.what());
    return 2;
  }
  return 0;
}
