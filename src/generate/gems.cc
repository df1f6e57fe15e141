#include "generate/entries.h"
#include "generate/shape.h"

namespace chimera {
namespace {

Schedule gems(const PipelineShape& shape) {
  const std::int64_t depth = shape.stages;
  return ordered_schedule(shape, opposite_placement(depth), [&](std::int64_t w) {
    std::vector<Op> ops;
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      // F and B of a micro-batch follow each other on every worker. The next micro-batch enters at the worker where
      // this one turned around, and follows its backwards.
      const StageId stage(m % 2 == 0 ? w : depth - 1 - w);
      for (const OpKind kind : {OpKind::Forward, OpKind::Backward})
        ops.push_back({kind, ReplicaId(m % 2), stage, MicroBatchId(m)});
    }
    return ops;
  });
}

}  // namespace

Generator gems_entry() {
  return {.name = "gems",
          .make = gems,
          .find_shape_error = reject_bad_counts<2>,
          .rule =
              "Two replicas in opposite directions, one active at a time: even micro-batches use the down pipeline, "
              "odd ones the up pipeline. Fewest activations, largest bubbles.",
          .constraints = "any D, N",
          .closed_form = "N(D B + F) + (D-1)F",
          .activations = "1",
          .source = "Jain et al., SC'20",
          .figure = {.stages = 4, .micro_batches = 4},
          .replicas = [](const PipelineShape&) { return std::int64_t{2}; },
          .paper = PaperModel{.critical_ops = [](const PipelineShape& shape, double) -> CriticalOps {
            return {shape.micro_batches + shape.stages - 1, shape.micro_batches * shape.stages};
          }}};
}

}  // namespace chimera
