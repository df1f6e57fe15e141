#include "generate/interleaved.h"

#include <fmt/format.h>
#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kLoopedBfs = "looped-bfs";

std::optional<std::string> looped_bfs_refusal(const PipelineShape& shape) { return loop_refusal(shape, 2); }

}  // namespace

Schedule looped_bfs(const PipelineShape& shape) {
  require_shape(kLoopedBfs, looped_bfs_refusal(shape));
  const std::int64_t depth = shape.stages;
  Schedule schedule{kLoopedBfs, depth * shape.chunks, shape.micro_batches, loop_placement(depth, shape.chunks), {}};
  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t w = 0; w < depth; ++w) {
    const auto visit = [&](OpKind kind, std::int64_t chunk) {
      for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
        schedule.workers[static_cast<std::size_t>(w)].push_back(
            {kind, ReplicaId(0), StageId(chunk * depth + w), MicroBatchId(m)});
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
              "twice per step, which suits sharded weights. Otherwise it is GPipe in v chunks.",
          .constraints = "any D, N, v",
          .closed_form = "((v-1)max(N,D)+N+D-1)(F+B)/v",
          .activations = "N",
          .source = "Lamy-Poirier, MLSys'23",
          .figure = {4, 4},
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

namespace {

std::int64_t num_groups(const PipelineShape& shape) {
  return std::max<std::int64_t>(1, shape.micro_batches / shape.stages);
}

}  // namespace

std::optional<std::string> interleaved_refusal(const PipelineShape& shape, std::int64_t ops_each) {
  if (auto refused = loop_refusal(shape, ops_each)) return refused;
  if (shape.micro_batches % num_groups(shape) == 0) return std::nullopt;
  return fmt::format(
      "--micro-batches must be a multiple of N div D = {}, not {} (N below D or a multiple of D always is)",
      num_groups(shape), shape.micro_batches);
}

Rounds::Rounds(const PipelineShape& shape)
    : depth_(shape.stages),
      chunks_(shape.chunks),
      group_(shape.micro_batches / num_groups(shape)),
      passes_(shape.micro_batches * shape.chunks) {}

Op Rounds::op(OpKind kind, std::int64_t worker, std::int64_t k) const {
  const std::int64_t turn = k % (group_ * chunks_) / group_;
  const std::int64_t chunk = kind == OpKind::Forward ? turn : chunks_ - 1 - turn;
  const std::int64_t micro_batch = k / (group_ * chunks_) * group_ + k % group_;
  return {kind, ReplicaId(0), StageId(chunk * depth_ + worker), MicroBatchId(micro_batch)};
}

std::vector<std::vector<Op>> one_f_one_b_in_rounds(const PipelineShape& shape, bool pairs) {
  const Rounds rounds(shape);
  std::vector<std::vector<Op>> workers(static_cast<std::size_t>(shape.stages));
  for (std::int64_t r = 0; r < shape.stages; ++r) {
    auto& ops = workers[static_cast<std::size_t>(r)];
    const std::int64_t ahead = 2 * (shape.stages - 1 - r) + (shape.chunks - 1) * rounds.group() + (pairs ? 1 : 0);
    const std::int64_t warm_up = std::min(ahead, rounds.passes());
    for (std::int64_t k = 0; k < warm_up; ++k) ops.push_back(rounds.op(OpKind::Forward, r, k));
    for (std::int64_t k = 0; k < rounds.passes(); ++k) {
      if (warm_up + k < rounds.passes()) {
        ops.push_back(rounds.op(OpKind::Forward, r, warm_up + k));
        ops.back().paired = pairs;
      }
      ops.push_back(rounds.op(OpKind::Backward, r, k));
    }
  }
  return workers;
}

namespace {

constexpr const char* kInterleaved = "interleaved-1f1b";

std::optional<std::string> interleaved_one_f_one_b_refusal(const PipelineShape& shape) {
  return interleaved_refusal(shape, 2);
}

}  // namespace

Schedule interleaved_one_f_one_b(const PipelineShape& shape) {
  require_shape(kInterleaved, interleaved_one_f_one_b_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t chunks = shape.chunks;
  return {kInterleaved, depth * chunks, shape.micro_batches, loop_placement(depth, chunks),
          one_f_one_b_in_rounds(shape, /*pairs=*/false)};
}

Generator interleaved_one_f_one_b_entry() {
  return {.name = kInterleaved,
          .generate = interleaved_one_f_one_b,
          .refusal = interleaved_one_f_one_b_refusal,
          .rule =
              "Each worker holds v stages: chunk c of worker r is stage cD+r. Micro-batches advance in groups of D "
              "(of N div max(1, N div D) if D does not divide N). Fewer bubbles, v times the messages.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+(D-1)/v stages",
          .source = "Narayanan et al., SC'21 (Megatron-LM)",
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

namespace {

constexpr const char* kCombined = "combined-1f1b";

std::optional<std::string> combined_refusal(const PipelineShape& shape) { return interleaved_refusal(shape, 2); }

}  // namespace

Schedule combined_one_f_one_b(const PipelineShape& shape) {
  require_shape(kCombined, combined_refusal(shape));
  return {kCombined, shape.stages * shape.chunks, shape.micro_batches, loop_placement(shape.stages, shape.chunks),
          one_f_one_b_in_rounds(shape, /*pairs=*/true)};
}

Generator combined_one_f_one_b_entry() {
  return {.name = kCombined,
          .generate = combined_one_f_one_b,
          .refusal = combined_refusal,
          .rule =
              "Interleaved 1F1B with one more warm-up forward, so that the forward and backward of each steady-state "
              "turn form a pair.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+D/v stages",
          .source = "NVIDIA, Megatron-LM, 2025",
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

namespace {

constexpr const char* kInterleavedZb = "interleaved-zb";

std::optional<std::string> interleaved_zb_refusal(const PipelineShape& shape) { return interleaved_refusal(shape, 3); }

}  // namespace

Schedule interleaved_zb(const PipelineShape& shape) {
  require_shape(kInterleavedZb, interleaved_zb_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t chunks = shape.chunks;
  const Rounds rounds(shape);
  Schedule schedule{kInterleavedZb, depth * chunks, shape.micro_batches, loop_placement(depth, chunks), {}};
  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t r = 0; r < depth; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const std::int64_t passes = rounds.passes();
    const std::int64_t warm_up = std::min((chunks - 1) * rounds.group() + depth - 1 - r, passes);
    const std::int64_t deferral = std::min(r, passes);
    for (std::int64_t k = 0; k < warm_up; ++k) ops.push_back(rounds.op(OpKind::Forward, r, k));
    for (std::int64_t k = 0; k < passes; ++k) {
      if (warm_up + k < passes) ops.push_back(rounds.op(OpKind::Forward, r, warm_up + k));
      ops.push_back(rounds.op(OpKind::BackwardInput, r, k));
      if (k >= deferral) ops.push_back(rounds.op(OpKind::BackwardWeight, r, k - deferral));
    }
    for (std::int64_t k = passes - deferral; k < passes; ++k) {
      ops.push_back(rounds.op(OpKind::BackwardWeight, r, k));
    }
  }
  return schedule;
}

Generator interleaved_zb_entry() {
  return {
      .name = kInterleavedZb,
      .generate = interleaved_zb,
      .refusal = interleaved_zb_refusal,
      .rule =
          "Interleaved 1F1B with B split into I and W, and as few warm-up forwards as ZB-H1. Worker r delays r of its "
          "W, which fill bubbles. The order equals PyTorch's ScheduleInterleavedZeroBubble.",
      .constraints = "N < D or a multiple of N div D",
      .closed_form = "N(F+I+W) + (D-1)max(F,I,F+I-W)/v at D | N",
      .activations = "D at D | N",
      .source = "Qi et al., ICLR'24 (ZB-H1); PyTorch",
      .figure = {4, 4},
      .axes = {looped_chunks()},
      .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

}  // namespace chimera
