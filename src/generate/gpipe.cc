#include "generate/gpipe.h"

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kGpipe = "gpipe";

std::optional<std::string> gpipe_refusal(const PipelineShape& shape) { return shape_error(shape); }

CriticalOps gpipe_critical_ops(const PipelineShape& shape, double) {
  const std::int64_t each = shape.micro_batches + shape.stages - 1;
  return {each, each};
}

/// Worker w waits for w forwards at the start and w backwards at the end.
FreeRegions gpipe_free_regions(const PipelineShape&, std::int64_t worker) { return {.forwards_and_backwards = worker}; }

}  // namespace

Schedule gpipe(const PipelineShape& shape) {
  require_shape(kGpipe, gpipe_refusal(shape));
  Schedule schedule{.name = kGpipe,
                    .stages = shape.stages,
                    .micro_batches = shape.micro_batches,
                    .placement = linear_placement(shape.stages),
                    .workers = {},
                    .slices = shape.slices};
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      for (std::int64_t i = 0; i < shape.micro_batches * shape.slices; ++i) {
        ops.push_back(sliced_op(kind, ReplicaId(0), StageId(s), i, shape.slices));
      }
    }
  }
  return schedule;
}

Generator gpipe_entry() {
  return {.name = kGpipe,
          .generate = gpipe,
          .refusal = gpipe_refusal,
          .rule = "All forwards, then all backwards in the same order.",
          .constraints = "any D, N, k",
          .closed_form = "(N+(D-1)/k)(F+B)",
          .activations = "N",
          .source = "Huang et al., NeurIPS'19",
          .figure = {4, 4},
          .axes = {slices()},
          .paper = PaperModel{gpipe_critical_ops, gpipe_free_regions}};
}

}  // namespace chimera
