#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

// What interleaved 1F1B and its split-backward form share: micro-batches that go round the chunks in groups.

namespace chimera {

/// Looped breadth-first pipeline: the model in S = D v stages, stage s on worker s mod D. A worker runs all N forwards
/// of its first stage, then all of its second, and so on; then all backwards of its last stage, of the one before, and
/// so on. Each stage is visited once forward and once backward, so that sharded weights are gathered twice a step.
///
/// Any D, N and v. Makespan ((v-1) max(N, D) + N + D - 1)(F+B)/v, F and B being the time of a worker's whole share;
/// every worker holds the activations of N v stages, N of its whole share. Backwards are in the order of the samples,
/// which torch.distributed.pipelining reverses; both take as long.
/// Throws ConfigError if D, N or v is not positive, or the ops are more than kMostOps.
/// Source: Lamy-Poirier, MLSys'23 (Breadth-first pipeline parallelism).
[[nodiscard]] Schedule looped_bfs(const PipelineShape& shape);

[[nodiscard]] Generator looped_bfs_entry();

/// 1F1B with v = `chunks` virtual stages on each worker: the model is cut into S = D v stages, and stage s is on worker
/// s mod D, so that a micro-batch passes through all workers v times and the pipeline fills in steps of a v-th of a
/// worker's share.
///
/// Forwards run in groups: g micro-batches at a worker's first stage, the same at its second, and so on, then the next
/// g; backwards likewise from its last stage to its first. Worker r starts with min(2(D-1-r) + (v-1) g, N v) forwards,
/// then runs one forward and one backward in turn, then the remaining backwards. N is split into max(1, N div D) equal
/// groups: g is D where D divides N, and between D and 2D for any other N above D.
///
/// Where D divides N the makespan is N (F+B) + (D-1)(F+B)/v, F and B being the time of a worker's whole share. Worker r
/// holds min(2(D-1-r) + (v-1) g + 1, N v) activations, each a v-th of a stage's of 1F1B. v = 1 at N = k D is another
/// order than 1F1B's, with more forwards ahead.
/// Throws ConfigError if D, N or v is not positive, the ops are more than kMostOps, or the groups are not equal.
/// Source: Narayanan et al., SC'21 (Megatron-LM), section 2.2.2; groups as in torch.distributed.pipelining.
[[nodiscard]] Schedule interleaved_one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator interleaved_one_f_one_b_entry();

/// Interleaved 1F1B with one warm-up forward more on every worker, so that the forward and the backward of each turn
/// are a pair, on the last worker too, whose backward would need that forward otherwise. Shapes as interleaved 1F1B
/// has them; v = 1 is 1F1B with 2(D - r) - 1 warm-up forwards on worker r: as its pairs hand on both results at their
/// end, a micro-batch goes to the next worker and its gradient comes back in two turns, not in one as in 1F1B.
///
/// Where D divides N, the makespan is N (F+B) + (D-1)(F+B)/v, as interleaved 1F1B's. Where moreover the ops of a pair
/// complete jointly in time F&B and N >= 2D, it is (N v - (v-1) D - 1)(F+B - F&B)/v less. Worker r holds
/// min(2(D-1-r) + (v-1) g + 2, N v) activations, each a v-th of a stage's of 1F1B.
/// Throws ConfigError as interleaved_one_f_one_b() does. Source: Megatron-LM's combined 1F1B, which overlaps the
/// communication of expert parallelism.
[[nodiscard]] Schedule combined_one_f_one_b(const PipelineShape& shape);

[[nodiscard]] Generator combined_one_f_one_b_entry();

/// Interleaved 1F1B with the backward split into I and W: v = `chunks` virtual stages on each worker, stage s on worker
/// s mod D, and micro-batches that go round them in groups of g (interleaved.h). Worker r starts with
/// min((v-1) g + D-1-r, N v) forwards; then, for j = 0, 1, .., it runs the next forward while there is one, the j-th I,
/// and from j = r on the oldest W; then the remaining W.
///
/// N below D or a multiple of N div D; any D and v. Where D divides N the makespan is
/// N (F+I+W) + (D-1) max(F, I, F+I-W)/v, F, I and W being the time of a worker's whole share, and every worker holds
/// at most D activations of its share (more where D does not divide N). At F = I = W no order on this placement, nor on
/// one in waves, is faster. v = 1 is ZB-H1 where D divides N.
/// Throws ConfigError if D, N or v is not positive, the ops are more than kMostOps, or the groups are not equal.
/// Source: Qi et al., ICLR'24 (ZB-H1); interleaved in torch.distributed.pipelining (ScheduleInterleavedZeroBubble), of
/// which these are the orders.
[[nodiscard]] Schedule interleaved_zb(const PipelineShape& shape);

[[nodiscard]] Generator interleaved_zb_entry();

/// Why interleaved schedules do not take the shape: loop_refusal(), or N is no multiple of its number of groups,
/// max(1, N div D).
[[nodiscard]] std::optional<std::string> interleaved_refusal(const PipelineShape& shape, std::int64_t ops_each);

/// The order in which a worker runs the forwards, and the backwards, of its v chunks (chunk c of worker r is stage
/// cD + r): `group` micro-batches at its first chunk, the same at its second, and so on, then the next `group`.
/// Backwards likewise, from its last chunk to its first. N is split into max(1, N div D) groups.
/// Source: Narayanan et al., SC'21 (Megatron-LM), section 2.2.2; groups as in torch.distributed.pipelining.
class Rounds {
 public:
  explicit Rounds(const PipelineShape& shape);

  [[nodiscard]] std::int64_t group() const { return group_; }
  /// Forwards of a worker; as many backwards.
  [[nodiscard]] std::int64_t passes() const { return passes_; }
  /// The worker's k-th forward, B, I or W, k from 0 to passes() - 1. A W comes in the order of the I.
  [[nodiscard]] Op op(OpKind kind, std::int64_t worker, std::int64_t k) const;

 private:
  std::int64_t depth_;
  std::int64_t chunks_;
  std::int64_t group_;
  std::int64_t passes_;
};

/// 1F1B in such rounds: worker r warms up with 2(D-1-r) + (v-1) group() forwards, or as many as there are, then runs
/// one forward and one backward in turn, then the remaining backwards. With `pairs` it warms up with one more, and the
/// two of a turn are a pair. [worker]
[[nodiscard]] std::vector<std::vector<Op>> one_f_one_b_in_rounds(const PipelineShape& shape, bool pairs);

}  // namespace chimera
