#include "generate/gpipe.h"

#include "generate/one_f_one_b.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kGpipe = "gpipe";

}  // namespace

Schedule gpipe(const PipelineShape& shape) {
  require_shape(kGpipe, shape_error(shape));
  Schedule schedule = empty_schedule(kGpipe, shape, linear_placement(shape.stages));
  schedule.slices = shape.slices;
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      for (std::int64_t i = 0; i < shape.micro_batches * shape.slices; ++i) {
        schedule.workers[static_cast<std::size_t>(s)].push_back(
            sliced_op(kind, ReplicaId(0), StageId(s), i, shape.slices));
      }
    }
  }
  return schedule;
}

Generator gpipe_entry() {
  return {.name = kGpipe,
          .generate = gpipe,
          .refusal = refuse_bad_counts<2>,
          .rule =
              "All forwards, then all backwards in the same order of micro-batches, as in PyTorch. The backwards of a "
              "micro-batch begin with its last slice.",
          .constraints = "any D, N, k",
          .closed_form = "(N+(D-1)/k)(F+B)",
          .activations = "N",
          .source = "Huang et al., NeurIPS'19",
          .figure = {.stages = 4, .micro_batches = 4},
          .axes = {slices()},
          .paper = one_f_one_b_model()};
}

}  // namespace chimera
