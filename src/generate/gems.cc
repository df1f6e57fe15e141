#include "generate/gems.h"

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kGems = "gems";

std::optional<std::string> gems_refusal(const PipelineShape& shape) { return shape_error(shape); }

CriticalOps gems_critical_ops(const PipelineShape& shape, double) {
  return {shape.micro_batches + shape.stages - 1, shape.micro_batches * shape.stages};
}

}  // namespace

Schedule gems(const PipelineShape& shape) {
  require_shape(kGems, gems_refusal(shape));
  const std::int64_t depth = shape.stages;
  Schedule schedule{kGems, depth, shape.micro_batches, linear_placement(depth), {}};
  auto& up = schedule.placement.worker_of.emplace_back();
  for (std::int64_t s = 0; s < depth; ++s) up.emplace_back(depth - 1 - s);

  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t w = 0; w < depth; ++w) {
    auto& ops = schedule.workers[static_cast<std::size_t>(w)];
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      const StageId stage(m % 2 == 0 ? w : depth - 1 - w);
      for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
        ops.push_back({kind, ReplicaId(m % 2), stage, MicroBatchId(m)});
      }
    }
  }
  return schedule;
}

Generator gems_entry() {
  return {.name = kGems,
          .generate = gems,
          .refusal = gems_refusal,
          .rule =
              "Two replicas in opposite directions, one active at a time: even micro-batches use the down pipeline, "
              "odd ones the up pipeline. Fewest activations, largest bubbles.",
          .constraints = "any D, N",
          .closed_form = "N(D B + F) + (D-1)F",
          .activations = "1",
          .source = "Jain et al., SC'20",
          .figure = {4, 4},
          .replicas = [](const PipelineShape&) { return std::int64_t{2}; },
          .paper = PaperModel{gems_critical_ops}};
}

}  // namespace chimera
