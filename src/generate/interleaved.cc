#include "generate/interleaved.h"

#include <fmt/format.h>
#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kLoopedBfs = "looped-bfs";
constexpr const char* kInterleaved = "interleaved-1f1b";
constexpr const char* kCombined = "combined-1f1b";
constexpr const char* kInterleavedZb = "interleaved-zb";

std::optional<std::string> looped_bfs_refusal(const PipelineShape& shape) { return loop_refusal(shape, 2); }

TakenAxis looped_chunks() {
  return {.axis = Axis::Chunks, .usual = 2, .planned = [](const PipelineShape&) {
            return std::vector<std::int64_t>{2, 4};
          }};
}

std::int64_t num_groups(const PipelineShape& shape) {
  return std::max<std::int64_t>(1, shape.micro_batches / shape.stages);
}

template <std::int64_t kOpsEach>
std::optional<std::string> interleaved_refusal(const PipelineShape& shape) {
  if (auto refused = loop_refusal(shape, kOpsEach)) return refused;
  if (shape.micro_batches % num_groups(shape) == 0) return std::nullopt;
  return fmt::format(
      "--micro-batches must be a multiple of N div D = {}, not {} (N below D or a multiple of D always is)",
      num_groups(shape), shape.micro_batches);
}

/// The order of a worker's forwards, and of its backwards: group by group, through all chunks of the worker. Chunk c of
/// worker r is stage cD + r.
class Rounds {
 public:
  Rounds(const PipelineShape& shape, std::int64_t worker)
      : depth_(shape.stages),
        chunks_(shape.chunks),
        worker_(worker),
        group_(shape.micro_batches / num_groups(shape)),
        passes_(shape.micro_batches * shape.chunks) {}

  /// Number of forwards before the worker's last chunk has its first one.
  [[nodiscard]] std::int64_t before_last_chunk() const { return (chunks_ - 1) * group_; }
  /// Number of forwards, and of backwards.
  [[nodiscard]] std::int64_t passes() const { return passes_; }
  /// Returns the k-th forward, B, I or W, k from 0 to passes() - 1.
  [[nodiscard]] Op op(OpKind kind, std::int64_t k) const {
    const std::int64_t turn = k % (group_ * chunks_) / group_;
    const std::int64_t chunk = kind == OpKind::Forward ? turn : chunks_ - 1 - turn;
    const std::int64_t micro_batch = k / (group_ * chunks_) * group_ + k % group_;
    return {kind, ReplicaId(0), StageId(chunk * depth_ + worker_), MicroBatchId(micro_batch)};
  }

 private:
  std::int64_t depth_;
  std::int64_t chunks_;
  std::int64_t worker_;
  std::int64_t group_;
  std::int64_t passes_;
};

/// Returns 1F1B in rounds. With `pairs`, each worker has one more warm-up forward, and each later turn is a pair.
Schedule one_f_one_b_in_rounds(const char* name, const PipelineShape& shape, bool pairs) {
  require_shape(name, interleaved_refusal<2>(shape));
  Schedule schedule = empty_schedule(name, shape, loop_placement(shape.stages, shape.chunks));
  for (std::int64_t r = 0; r < shape.stages; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const Rounds rounds(shape, r);
    const std::int64_t ahead = 2 * (shape.stages - 1 - r) + rounds.before_last_chunk() + (pairs ? 1 : 0);
    const std::int64_t warm_up = std::min(ahead, rounds.passes());
    for (std::int64_t k = 0; k < warm_up; ++k) ops.push_back(rounds.op(OpKind::Forward, k));
    for (std::int64_t k = 0; k < rounds.passes(); ++k) {
      if (warm_up + k < rounds.passes()) {
        ops.push_back(rounds.op(OpKind::Forward, warm_up + k));
        ops.back().paired = pairs;
      }
      ops.push_back(rounds.op(OpKind::Backward, k));
    }
  }
  return schedule;
}

}  // namespace

Schedule looped_bfs(const PipelineShape& shape) {
  require_shape(kLoopedBfs, looped_bfs_refusal(shape));
  Schedule schedule = empty_schedule(kLoopedBfs, shape, loop_placement(shape.stages, shape.chunks));
  for (std::int64_t w = 0; w < shape.stages; ++w) {
    const auto visit = [&](OpKind kind, std::int64_t chunk) {
      for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
        schedule.workers[static_cast<std::size_t>(w)].push_back(
            {kind, ReplicaId(0), StageId(chunk * shape.stages + w), MicroBatchId(m)});
      }
    };
    for (std::int64_t chunk = 0; chunk < shape.chunks; ++chunk) visit(OpKind::Forward, chunk);
    for (std::int64_t chunk = shape.chunks - 1; chunk >= 0; --chunk) visit(OpKind::Backward, chunk);
  }
  return schedule;
}

Generator looped_bfs_entry() {
  return {.name = kLoopedBfs,
          .generate = looped_bfs,
          .refusal = looped_bfs_refusal,
          .rule =
              "Each worker holds v stages: chunk c of worker r is stage cD+r. A worker runs all forwards of its first "
              "chunk, then of the next; then all backwards from its last chunk to its first. It visits each stage "
              "twice per step, which suits sharded weights. Otherwise it is GPipe in v chunks. Backwards run in the "
              "order of the samples, in PyTorch in the reverse order.",
          .constraints = "any D, N, v",
          .closed_form = "((v-1)max(N,D)+N+D-1)(F+B)/v",
          .activations = "N",
          .source = "Lamy-Poirier, MLSys'23",
          .figure = {.stages = 4, .micro_batches = 4},
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

Schedule interleaved_one_f_one_b(const PipelineShape& shape) {
  return one_f_one_b_in_rounds(kInterleaved, shape, /*pairs=*/false);
}

Generator interleaved_one_f_one_b_entry() {
  return {.name = kInterleaved,
          .generate = interleaved_one_f_one_b,
          .refusal = interleaved_refusal<2>,
          .rule =
              "Each worker holds v stages: chunk c of worker r is stage cD+r. N micro-batches form max(1, N div D) "
              "groups of equal size g (D if D divides N), as in PyTorch. A worker runs the forwards of a group at its "
              "first chunk, then at its second, and so on, then the next group; its backwards likewise from the last "
              "chunk to the first. Worker r starts with min(2(D-1-r)+(v-1)g, vN) forwards, then alternates forward and "
              "backward. Fewer bubbles, v times the messages.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+(D-1)/v stages",
          .source = "Narayanan et al., SC'21 (Megatron-LM)",
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

Schedule combined_one_f_one_b(const PipelineShape& shape) {
  return one_f_one_b_in_rounds(kCombined, shape, /*pairs=*/true);
}

Generator combined_one_f_one_b_entry() {
  return {.name = kCombined,
          .generate = combined_one_f_one_b,
          .refusal = interleaved_refusal<2>,
          .rule =
              "Interleaved 1F1B with one more warm-up forward, so that the forward and backward of each later turn are "
              "independent and form a pair. Megatron-LM overlaps the communication of expert parallelism so. If a pair "
              "takes F&B together and N ≥ 2D, the makespan is (Nv-(v-1)D-1)(F+B-F&B)/v shorter.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+D/v stages",
          .source = "NVIDIA, Megatron-LM, 2025",
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

Schedule interleaved_zb(const PipelineShape& shape) {
  require_shape(kInterleavedZb, interleaved_refusal<3>(shape));
  Schedule schedule = empty_schedule(kInterleavedZb, shape, loop_placement(shape.stages, shape.chunks));
  for (std::int64_t r = 0; r < shape.stages; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const Rounds rounds(shape, r);
    const std::int64_t passes = rounds.passes();
    const std::int64_t warm_up = std::min(rounds.before_last_chunk() + shape.stages - 1 - r, passes);
    const std::int64_t deferral = std::min(r, passes);
    for (std::int64_t k = 0; k < warm_up; ++k) ops.push_back(rounds.op(OpKind::Forward, k));
    for (std::int64_t k = 0; k < passes; ++k) {
      if (warm_up + k < passes) ops.push_back(rounds.op(OpKind::Forward, warm_up + k));
      ops.push_back(rounds.op(OpKind::BackwardInput, k));
      if (k >= deferral) ops.push_back(rounds.op(OpKind::BackwardWeight, k - deferral));
    }
    for (std::int64_t k = passes - deferral; k < passes; ++k) ops.push_back(rounds.op(OpKind::BackwardWeight, k));
  }
  return schedule;
}

Generator interleaved_zb_entry() {
  return {
      .name = kInterleavedZb,
      .generate = interleaved_zb,
      .refusal = interleaved_refusal<3>,
      .rule =
          "Interleaved 1F1B with B split into I and W. Worker r starts with (v-1)g+D-1-r forwards, as few as ZB-H1, "
          "and delays its first r weight gradients, which fill bubbles. The order equals PyTorch's "
          "ScheduleInterleavedZeroBubble. For F = I = W and D | N no schedule of one replica in loop or wave "
          "placement is faster.",
      .constraints = "N < D or a multiple of N div D",
      .closed_form = "N(F+I+W) + (D-1)max(F,I,F+I-W)/v at D | N",
      .activations = "D at D | N",
      .source = "Qi et al., ICLR'24 (ZB-H1); PyTorch",
      .figure = {.stages = 4, .micro_batches = 4},
      .axes = {looped_chunks()},
      .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

}  // namespace chimera
