#pragma once
// Predicts GPT-2-64 on hundreds of workers, each schedule in its best configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace chimera {

/// Settings of SC'21: sequences of 632 tokens on P100s with 16 GB.
struct ScaleOptions {
  std::string machine = "machines/p100-aries.json";
  std::string model = "gpt2-64";
  std::int64_t sequence = 632;
  double memory = 16e9;         // bytes per worker
  bool blocking_sends = false;  // workers wait for their messages, and all-reduces start after their last op
  bool recompute_all = false;   // if memory requires recomputation, recompute all stages
};

struct ScaleLine {
  std::string name;
  std::string schedule;
  std::vector<std::int64_t> pipelines = {};  // 2f
};
/// Returns the paper's comparison (Chimera with f = 1), then Chimera's other shapes.
[[nodiscard]] const std::vector<ScaleLine>& scale_lines();

/// Returns the fastest candidate, with a sequence per worker in each mini-batch; empty if nothing fits. PipeDream
/// updates after every micro-batch, so its mini-batch is W b. Throws ConfigError if the machine profile cannot be read.
[[nodiscard]] std::optional<std::pair<PlanProblem, RankedCandidate>> best_at_scale(const ScaleOptions& options,
                                                                                   const ScaleLine& line,
                                                                                   std::int64_t workers);

/// Throughput of Chimera with f = 1 over another schedule's, from the paper's abstract.
struct PaperRatio {
  std::string schedule;
  double ratio;
};
inline constexpr std::int64_t kPaperRatioWorkers = 2048;
[[nodiscard]] const std::vector<PaperRatio>& paper_ratios();

}  // namespace chimera
