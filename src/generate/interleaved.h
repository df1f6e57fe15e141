#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Looped breadth-first pipeline: S = D v stages, stage s on worker s mod D. A worker runs all N forwards of its first
/// stage, then of its second, and so on; then all backwards from its last stage to its first. Sharded weights are
/// therefore gathered only twice per step.
///
/// Any D, N and v, else ConfigError. Makespan ((v-1) max(N, D) + N + D - 1)(F+B)/v, with F and B of a worker's whole
/// share; each worker holds N activations of its whole share. Backwards are in sample order, reversed in
/// torch.distributed.pipelining. Source: Lamy-Poirier, MLSys'23 (Breadth-first pipeline parallelism).
[[nodiscard]] Schedule looped_bfs(const PipelineShape& shape);

[[nodiscard]] Generator looped_bfs_entry();

/// Interleaved 1F1B: S = D v stages, stage s on worker s mod D.
///
/// Forwards run in groups: g micro-batches at a worker's first stage, the same at its second, and so on, then the next
/// g. Backwards run the same way from its last stage to its first. Worker r starts with min(2(D-1-r) + (v-1) g, N v)
/// forwards, then alternates forward and backward, then runs the remaining backwards. N is split into max(1, N div D)
/// equal groups: g is D if D divides N, and between D and 2D for other N > D.
///
/// If D divides N the makespan is N (F+B) + (D-1)(F+B)/v, with F and B of a worker's whole share. Worker r holds
/// min(2(D-1-r) + (v-1) g + 1, N v) activations of a stage. At v = 1 and N = k D it has more forwards ahead than
/// 1F1B. Throws ConfigError if interleaved_refusal() has a reason. Source: Narayanan et al., SC'21 (Megatron-LM),
/// section 2.2.2; groups as in torch.distributed.pipelining.
[[nodiscard]] Schedule interleaved_one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator interleaved_one_f_one_b_entry();

/// Combined 1F1B: interleaved 1F1B with one more warm-up forward, so that each turn's forward and backward are
/// independent and form a pair.
///
/// If D divides N, the makespan is N (F+B) + (D-1)(F+B)/v. If also a pair takes F&B together and N >= 2D, it is (N v -
/// (v-1) D - 1)(F+B - F&B)/v less. Worker r holds min(2(D-1-r) + (v-1) g + 2, N v) activations of a stage. Throws
/// like interleaved_one_f_one_b(). Source: Megatron-LM's combined 1F1B, which overlaps the communication of expert
/// parallelism.
[[nodiscard]] Schedule combined_one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator combined_one_f_one_b_entry();

/// Interleaved 1F1B with split backward. Worker r starts with min((v-1) g + D-1-r, N v) forwards. Then, for j = 0, 1,
/// .., it runs the next forward if any, the j-th I and, from j = r on, the oldest W; then the remaining W.
///
/// If D divides N, the makespan is N (F+I+W) + (D-1) max(F, I, F+I-W)/v, with F, I and W of a worker's whole share, and
/// each worker holds at most D activations of its share (more for other N). For F = I = W it is the minimum for one
/// replica in loop or wave placement. v = 1 is ZB-H1 if D divides N.
///
/// Throws like interleaved_one_f_one_b(). Source: Qi et al., ICLR'24 (ZB-H1); the orders equal
/// torch.distributed.pipelining's ScheduleInterleavedZeroBubble.
[[nodiscard]] Schedule interleaved_zb(const PipelineShape& shape);

[[nodiscard]] Generator interleaved_zb_entry();

/// Returns why interleaved schedules reject the shape: loop_refusal(), or N is not a multiple of max(1, N div D).
[[nodiscard]] std::optional<std::string> interleaved_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// The order of the forwards, and of the backwards, on a worker (see interleaved_one_f_one_b). Chunk c of worker r is
/// stage cD + r.
class Rounds {
 public:
  explicit Rounds(const PipelineShape& shape);

  [[nodiscard]] std::int64_t group() const { return group_; }
  /// Number of forwards, and of backwards.
  [[nodiscard]] std::int64_t passes() const { return passes_; }
  /// Returns the worker's k-th forward, B, I or W, k from 0 to passes() - 1.
  [[nodiscard]] Op op(OpKind kind, std::int64_t worker, std::int64_t k) const;

 private:
  std::int64_t depth_;
  std::int64_t chunks_;
  std::int64_t group_;
  std::int64_t passes_;
};

/// Returns [worker]: 1F1B in these rounds. With `pairs`, each worker has one more warm-up forward, and each turn is a
/// pair.
[[nodiscard]] std::vector<std::vector<Op>> one_f_one_b_in_rounds(const PipelineShape& shape, bool pairs);

}  // namespace chimera
