// Peak memory of a step for each worker, and the number of micro-batches in flight that the schedule promises.

#include <fmt/format.h>
#include <torch/version.h>

#include <cstdio>
#include <exception>

#include "bench/machine_line.h"
#include "generate/registry.h"
#include "measuring/run_memory.h"
#include "passes/unroll.h"
#include "simulate/simulate.h"

namespace chimera::benchmarks {
namespace {

constexpr std::int64_t kStages = 4;
constexpr BatchSize kSize{.sequences = 4, .tokens = 64};
constexpr double kMebibyte = 1024.0 * 1024.0;

/// ` 6.71 (4)` for each worker: peak in MiB, and micro-batches in flight.
std::string cells(const Schedule& schedule, const ModelConfig& model, Exchange exchange,
                  const LoweringOptions& lowering) {
  const Timeline timeline = simulate(schedule, CostModel::uniform(schedule, StageCosts{.forward = 1, .backward = 2}));
  const auto memory = measure_step_memory(schedule, model, kSize, exchange, lowering);
  std::string text;
  for (std::size_t w = 0; w < memory.size(); ++w) {
    text += fmt::format("{:>9.2f} {:>4}", static_cast<double>(memory[w].peak_bytes) / kMebibyte,
                        fmt::format("({})", timeline.workers[w].peak_in_flight));
  }
  return text;
}

void print_table(const char* title, Exchange exchange, const LoweringOptions& lowering = {}) {
  const ModelConfig model = find_model("gpt2-tiny");
  fmt::print("{:<9} {:>3}", "schedule", "N");
  for (std::int64_t w = 0; w < kStages; ++w) fmt::print("{:>14}", fmt::format("worker {}", w));
  fmt::print("   {}\n", title);
  for (const char* name : {"gpipe", "1f1b", "chimera"}) {
    for (const std::int64_t micro_batches : {4, 8, 32}) {
      const Schedule schedule = find_generator(name).generate({kStages, micro_batches});
      fmt::print("{:<9} {:>3}{}\n", name, micro_batches, cells(schedule, model, exchange, lowering));
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
}

LoweringOptions recomputing_all() {
  LoweringOptions options;
  for (std::int64_t s = 0; s < kStages; ++s) options.recompute.emplace(s);
  return options;
}

/// For three steps without a flush: live memory after them, which is copies of weights, and the simulated number of
/// versions of each stage.
void print_versions() {
  constexpr std::int64_t kSteps = 3;
  const ModelConfig model = find_model("gpt2-tiny");
  LoweringOptions lowering;
  lowering.steps = kSteps;
  fmt::print("{:<13} {:>3}", "schedule", "N");
  for (std::int64_t w = 0; w < kStages; ++w) fmt::print("{:>14}", fmt::format("worker {}", w));
  fmt::print("   MiB of weights kept beside the newest (versions)\n");
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    for (const std::int64_t micro_batches : {4, 8}) {
      const Schedule schedule = unroll(find_generator(name).generate({kStages, micro_batches}), kSteps);
      const CostModel costs = CostModel::uniform(schedule, StageCosts{.forward = 1, .backward = 2});
      const Timeline timeline = simulate(schedule, costs, {.steps = kSteps});
      const auto memory = measure_step_memory(schedule, model, kSize, Exchange::ByReference, lowering);
      fmt::print("{:<13} {:>3}", name, micro_batches);
      for (std::size_t w = 0; w < memory.size(); ++w) {
        fmt::print("{:>9.2f} {:>4}", static_cast<double>(memory[w].after_bytes) / kMebibyte,
                   fmt::format("({})", timeline.workers[w].peak_weight_versions));
      }
      fmt::print("\n");
    }
  }
}

void run_all() {
  fmt::print("Peak memory of a step beside weights, gradients and optimizer states: MiB of tensors (in flight)\n");
  fmt::print("{}\n", machine_line("LibTorch " TORCH_VERSION));
  fmt::print("gpt2-tiny, sequence {}, micro-batches of {}, D = {}; micro-batches in flight: from simulate()\n",
             kSize.tokens, kSize.sequences, kStages);
  print_table("messages by reference (threads)", Exchange::ByReference);
  print_table("messages over Gloo (as processes)", Exchange::OverGloo);
  print_table("over Gloo, every stage recomputed", Exchange::OverGloo, recomputing_all());
  print_versions();
}

}  // namespace
}  // namespace chimera::benchmarks

int main() {
  try {
    chimera::benchmarks::run_all();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "memory: {}\n", error.what());
    return 1;
  }
}
