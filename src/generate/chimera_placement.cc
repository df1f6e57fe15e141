#include "generate/chimera_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

/// Returns the legal numbers of pipelines for even D, ascending, up to `most`.
std::vector<std::int64_t> legal_pipelines(std::int64_t stages, std::int64_t most) {
  std::vector<std::int64_t> legal;
  for (std::int64_t f = 1; f <= std::min(stages, most) / 2; ++f)
    if ((stages / 2) % f == 0) legal.push_back(2 * f);
  return legal;
}

}  // namespace

std::optional<std::string> chimera_shape_error(const PipelineShape& shape, std::int64_t ops_each) {
  if (auto refused = odd_stages_error(shape.stages, "with odd D both directions need the same slots")) return refused;
  if (auto refused = loop_shape_error(shape, ops_each)) return refused;
  if (shape.pipelines % 2 != 0 || (shape.stages / 2) % (shape.pipelines / 2) != 0)
    return fmt::format("--pipelines must be twice a divisor of D/2 = {}: {}; not {}", shape.stages / 2,
                       fmt::join(legal_pipelines(shape.stages, 128), ", "), shape.pipelines);
  if (chimera_stages(shape) > kMaxOps / shape.pipelines)
    return fmt::format("{} pipelines of {} stages are more than {} stages in all; use fewer of either", shape.pipelines,
                       chimera_stages(shape), kMaxOps);
  return std::nullopt;
}

SupportedAxis bidirectional_pipelines() {
  return {.axis = Axis::Pipelines, .usual = 2, .planned = [](const PipelineShape& shape) {
            return legal_pipelines(shape.stages, shape.stages);
          }};
}

SupportedAxis bidirectional_chunks() { return supported(Axis::Chunks, 1, {1, 2}); }

std::int64_t chimera_stages(const PipelineShape& shape) { return shape.stages * shape.chunks; }

// Pipeline r of the f pipelines down begins D/f workers behind pipeline r-1, and the pipelines up are their mirror
// images (Li and Hoefler, SC'21). With chunks, a pipeline goes over all workers in waves.
Placement chimera_placement(const PipelineShape& shape) {
  const std::int64_t depth = shape.stages;
  const std::int64_t f = shape.pipelines / 2;
  return placement_by(2 * f, chimera_stages(shape), [&](std::int64_t r, std::int64_t s) {
    const std::int64_t place = wave_worker(s, depth);
    return (r % f * (depth / f) + (r < f ? place : depth - 1 - place)) % depth;
  });
}

// `distance` is the place of the worker counted from the pipeline's first worker, in the direction down.
StageId stage_on(std::int64_t worker, std::int64_t replica, std::int64_t chunk, const PipelineShape& shape) {
  const std::int64_t depth = shape.stages;
  const std::int64_t f = shape.pipelines / 2;
  const std::int64_t distance = (worker - replica % f * (depth / f) + depth) % depth;
  return StageId(wave_stage(replica < f ? distance : depth - 1 - distance, chunk, depth));
}

// As even as possible; earlier pipelines get the rest.
MicroBatchRange micro_batches_of_pipeline(std::int64_t pipeline, std::int64_t pipelines, std::int64_t first,
                                          std::int64_t count) {
  const std::int64_t least = count / pipelines;
  const std::int64_t extra = count % pipelines;
  return {first + pipeline * least + std::min(pipeline, extra), least + (pipeline < extra ? 1 : 0)};
}

// Each unit of D micro-batches is dealt anew, so that all pipelines are busy in every unit.
std::vector<ReplicaId> assign_to_pipelines(const PipelineShape& shape) {
  std::vector<ReplicaId> replica_of;
  for (std::int64_t first = 0; first < shape.micro_batches; first += shape.stages) {
    const std::int64_t count = std::min(shape.stages, shape.micro_batches - first);
    for (std::int64_t r = 0; r < shape.pipelines; ++r) {
      const MicroBatchRange share = micro_batches_of_pipeline(r, shape.pipelines, first, count);
      replica_of.insert(replica_of.end(), static_cast<std::size_t>(share.count), ReplicaId(r));
    }
  }
  return replica_of;
}

}  // namespace chimera
