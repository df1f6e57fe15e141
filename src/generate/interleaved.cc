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

}  // namespace chimera
