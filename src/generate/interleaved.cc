#include "generate/interleaved.h"

#include <fmt/format.h>

#include <algorithm>

#include "generate/shape.h"

namespace chimera {
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

}  // namespace chimera
