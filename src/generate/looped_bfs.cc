#include "generate/looped_bfs.h"

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
              "Each worker holds v stages, chunk c of worker r being stage cD+r: all forwards of its first chunk, then "
              "of the next; then all backwards of its last chunk, then of the one before. Each stage is visited twice "
              "a step, which is what sharded weights want; otherwise GPipe in v chunks.",
          .constraints = "any D, N, v",
          .closed_form = "((v-1)max(N,D)+N+D-1)(F+B)/v",
          .activations = "N",
          .source = "Lamy-Poirier, MLSys'23",
          .figure = {4, 4},
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

}  // namespace chimera
