#pragma once
// Measurements of Li and Hoefler (SC'21) and their predictions: step times of BERT-48 on 32 nodes (figure 13) and
// memory (figure 9), read from the vector graphics to about 0.3 %.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/candidate.h"
#include "plan/predict.h"

namespace chimera {

/// BERT-48, 32 nodes, mini-batch 512, Chimera with direct concatenation.
struct ThroughputRow {
  std::int64_t data_parallel;  // W
  std::int64_t stages;         // D
  std::int64_t micro_batch_size;
  double measured;     // sequences per second
  double paper_model;  // prediction of the paper's model
};
[[nodiscard]] const std::vector<ThroughputRow>& figure_13();

/// Returns the planner's prediction of each row with the machine as it is.
[[nodiscard]] std::vector<Prediction> predict_figure_13(const MachineProfile& machine,
                                                        AllReducePlacement sync = AllReducePlacement::EagerOpt);

/// Gigabytes (10^9 bytes) over workers.
struct MemoryRange {
  double most = 0;
  double least = 0;
};

/// 32 nodes, mini-batch 512.
struct MemoryRow {
  std::string model;
  std::int64_t layers;
  std::int64_t sequence;
  std::int64_t data_parallel;
  std::int64_t stages;
  std::int64_t micro_batch_size;
  std::map<std::string, std::optional<MemoryRange>> cells;  // keyed by schedule; empty: out of memory
};
[[nodiscard]] const std::vector<MemoryRow>& figure_9();

/// Fitted to Chimera's three maxima of BERT-48 only.
struct MemoryFit {
  double bytes_per_parameter = 0;  // includes 4 per weight version
  double base = 0;                 // bytes on every worker
  // Factor of 64 bytes per token and unit of width, and of `score_bytes`
  double activation_scale = 0;
};
/// Bytes that the paper's attention keeps per head and pair of tokens, before the fitted factor: scores, probabilities
/// and dropped probabilities in float32, and a byte of mask. Assumed, not fitted.
inline constexpr double kScoreBytes = 13;
[[nodiscard]] MemoryFit fit_figure_9(MachineProfile machine, double score_bytes = kScoreBytes);
/// Predicts by the order of ops (peaks_by_order), without message memory.
[[nodiscard]] MemoryRange predict_memory(MachineProfile machine, const MemoryRow& row, const std::string& schedule,
                                         const MemoryFit& fit, double score_bytes = kScoreBytes);

/// Memory of a P100 in gigabytes.
inline constexpr double kCapacity = 16;

}  // namespace chimera
