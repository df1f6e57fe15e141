#pragma once
// GPT-2-64 on hundreds of workers, on paper: schedules beside each other, each at its own best configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace chimera {

/// What is compared: as in SC'21, sequences of 632 tokens on P100s of 16 GB.
struct ScaleOptions {
  std::string machine = "machines/p100-aries.json";
  std::string model = "gpt2-64";
  std::int64_t sequence = 632;
  double memory = 16e9;         // bytes of a worker
  bool blocking_sends = false;  // workers wait for their messages, and sums start after their last op
  bool recompute_all = false;   // where anything has to be recomputed, all stages are
};

/// A line of the comparison: what is planned, and what of it is given.
struct ScaleLine {
  std::string name;
  std::string schedule;
  std::vector<std::int64_t> pipelines = {};  // 2f
};
/// First what the paper compares, Chimera with f = 1; then the best of Chimera's other shapes.
[[nodiscard]] const std::vector<ScaleLine>& scale_lines();

/// The fastest of a line, with as many sequences a step as there are workers; none where nothing fits. PipeDream
/// updates after every micro-batch, so its mini-batch is what memory admits at once, W b. Throws ConfigError where the
/// machine's profile cannot be read.
[[nodiscard]] std::optional<std::pair<PlanProblem, RankedCandidate>> best_at_scale(const ScaleOptions& options,
                                                                                   const ScaleLine& line,
                                                                                   std::int64_t workers);

/// How many times the throughput of another schedule Chimera with f = 1 has, by the paper's abstract: on 2,048 nodes.
struct PaperRatio {
  std::string schedule;
  double ratio;
};
inline constexpr std::int64_t kPaperRatioWorkers = 2048;
[[nodiscard]] const std::vector<PaperRatio>& paper_ratios();

}  // namespace chimera
