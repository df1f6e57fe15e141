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
  Schedule schedule{kGpipe, shape.stages, shape.micro_batches, linear_placement(shape.stages), {}};
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
        ops.push_back({kind, ReplicaId(0), StageId(s), MicroBatchId(m)});
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
          .constraints = "any D, N",
          .closed_form = "(N+D-1)(F+B)",
          .activations = "N",
          .source = "Huang et al., NeurIPS'19",
          .figure = {4, 4},
          .paper = PaperModel{gpipe_critical_ops, gpipe_free_regions}};
}

}  // namespace chimera
