#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

// What ZB-V, DualPipe and DualPipeV have in common: two virtual stages (chunks) on every worker, and a rule for each
// worker's order that says only "the next forward of chunk 0".

namespace chimera {

/// ZB-V: the model in 2D stages that run down the workers and up again, worker w holding stages w and 2D-1-w, so that
/// the first and the last stage share worker 0. Backwards are split (I and W); the weight gradients fill what would be
/// bubbles. Any D and N; for N < 2D-1 the order of 2D-1 micro-batches without those that are not there.
///
/// For N >= 2D-1 and I at least F and W, times being those of a worker's whole share: the makespan is N(F+I+W) + (D-1)
/// max(I/2, I-W), and the longest bubble between a worker's own first and last op (D-1)(I-W), or (D-1)(I-F)/2 where
/// that is more: none at F = I = W. Every worker holds the activations of 2D stages at once, D stage units (2N stages
/// for N < D). Throws ConfigError if D or N is not positive, or the ops are too many. Source: Qi et al., "Pipeline
/// parallelism with controllable memory", NeurIPS'24.
[[nodiscard]] Schedule zb_v(const PipelineShape& shape);

[[nodiscard]] Generator zb_v_entry();

/// V-Half: stages r and 2D-1-r on worker r, split backward, about half of 1F1B's activations. Every micro-batch repeats
/// one pattern, six slots (of one stage's F, I or W each) after the one before; free slots take the oldest W.
///
/// Any D and N. At F = I = W = 1 (of a worker's whole share) and enough micro-batches a worker waits 7D/4 - 1 for even
/// D, 7(D-1)/4 for odd, and holds at most (D+2) div 2 stage units. Keeps its rate where W + 2I >= 2F and W + 2F >= 2I.
/// Throws ConfigError if D or N is not positive, or the ops are more than kMostOps.
/// Source: Qi et al., NeurIPS'24 (Pipeline parallelism with controllable memory).
[[nodiscard]] Schedule v_half(const PipelineShape& shape);

[[nodiscard]] Generator v_half_entry();

/// V-Min: stages r and 2D-1-r on worker r, split backward, about a third of 1F1B's activations. Every micro-batch
/// repeats one pattern, six slots (of one stage's F, I or W each) after the one before; free slots take the oldest W.
///
/// Any D and N. At F = I = W = 1 (of a worker's whole share) and enough micro-batches a worker waits 2D - 5/2, or
/// 2D - 3/2 where 3 divides D, and holds at most (D+4) div 3 stage units. Unequal times and latency slow it down: all
/// of a micro-batch stands on one path. Throws ConfigError if D or N is not positive, or the ops are more than
/// kMostOps. Source: Qi et al., NeurIPS'24 (Pipeline parallelism with controllable memory).
[[nodiscard]] Schedule v_min(const PipelineShape& shape);

[[nodiscard]] Generator v_min_entry();

/// A stage of a replica, and the micro-batches that it runs: `count` from `first` on.
struct Chunk {
  ReplicaId replica = {};
  StageId stage = {};
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// F, B, I or W of chunk 0 or 1 on the next micro-batch there (B and I share a counter); or the weight gradient of the
/// worker's oldest I, of either chunk, that OldestW has not had yet. A rule uses W0 and W1, or OldestW. And stands
/// between the two of a pair, both of which write an op.
enum class Step : std::uint8_t { F0, F1, B0, B1, I0, I1, W0, W1, OldestW, And };

/// Writes one worker's ops by such a rule.
class TwoChunks {
 public:
  TwoChunks(const Chunk& chunk0, const Chunk& chunk1);

  /// The steps in turn, `times` over. A step beyond the last of its chunk's micro-batches counts, but writes nothing:
  /// so a rule for many micro-batches serves for fewer, at a cost of what it writes.
  void repeat(std::int64_t times, std::initializer_list<Step> steps);

  /// What has been written; leaves nothing.
  [[nodiscard]] std::vector<Op> take() { return std::move(ops_); }

 private:
  enum Counter : std::uint8_t { kForward, kBackward, kWeight };
  struct Progress {
    Chunk chunk;
    std::array<std::int64_t, 3> next{};  // [Counter]: micro-batches before this one have been written
  };

  std::int64_t& next_of(Step step);
  void write(Step step);
  void write_oldest_weight_gradient();

  std::array<Progress, 2> progress_;
  std::vector<Op> ops_;
  std::size_t oldest_ = 0;  // no op before this one is an I that waits for OldestW
};

}  // namespace chimera
