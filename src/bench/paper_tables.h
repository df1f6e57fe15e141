#pragma once
// What Li and Hoefler (SC'21) measured, and the same predicted: step times of BERT-48 on 32 nodes (figure 13) and
// memory (figure 9). Bars read from the paper's vector graphics, to about 0.3 %.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/candidate.h"
#include "plan/predict.h"

namespace chimera {

/// A configuration of figure 13: BERT-48, 32 nodes, mini-batch 512, Chimera by direct concatenation.
struct ThroughputRow {
  std::int64_t data_parallel;  // W
  std::int64_t stages;         // D
  std::int64_t micro_batch_size;
  double measured;     // sequences a second
  double paper_model;  // what the paper's model says
};
[[nodiscard]] const std::vector<ThroughputRow>& figure_13();

/// Which model: equation 1; the simulator where sums of gradients start after a worker's last op, so that ops hide
/// nothing of them; or as the paper has them (eager-opt), beside ops and messages, which go on undisturbed but for the
/// machine's contention.
enum class StepModel { EquationOne, SumsAfterOps, SumsBesideOps };

/// Two scalars, fitted so that the first and the last row (W2 D16, W16 D2) come out as measured.
struct LinkFit {
  double seconds_per_gigabyte_sent = 0;
  double seconds_per_gigabyte_summed = 0;
};

/// A prediction of figure 13's rows with that machine's compute times.
struct ThroughputPrediction {
  LinkFit fit;
  std::vector<double> sequences_per_second;  // [row]
};
[[nodiscard]] ThroughputPrediction predict_figure_13(const MachineProfile& machine, StepModel model);

/// Most and least gigabytes (10^9 bytes) on a worker.
struct MemoryRange {
  double most = 0;
  double least = 0;
};

/// A configuration of figure 9: 32 nodes, mini-batch 512.
struct MemoryRow {
  std::string model;
  std::int64_t layers;
  std::int64_t sequence;
  std::int64_t data_parallel;
  std::int64_t stages;
  std::int64_t micro_batch_size;
  std::map<std::string, std::optional<MemoryRange>> cells;  // by schedule; none: out of memory
};
[[nodiscard]] const std::vector<MemoryRow>& figure_9();

/// Fitted on Chimera's three maxima of BERT-48, and on nothing else.
struct MemoryFit {
  double bytes_per_parameter = 0;  // 4 of them a weight version's
  double base = 0;                 // bytes on every worker
  double activation_scale = 0;     // times 64 bytes a token and unit of width, and `score_bytes` a pair and head
};
/// Bytes of the paper's kernels that attention keeps for each head and pair of tokens, before the fitted factor:
/// scores, probabilities and dropped probabilities in float32 and a byte of mask. Assumed, not fitted.
inline constexpr double kScoreBytes = 13;
[[nodiscard]] MemoryFit fit_figure_9(MachineProfile machine, double score_bytes = kScoreBytes);
/// A cell as that fit predicts it, by the order of ops (peaks_by_order), without room for messages.
[[nodiscard]] MemoryRange predict_memory(MachineProfile machine, const MemoryRow& row, const std::string& schedule,
                                         const MemoryFit& fit, double score_bytes = kScoreBytes);

/// A P100's memory in the same unit, 16 GB.
inline constexpr double kCapacity = 16;

}  // namespace chimera
