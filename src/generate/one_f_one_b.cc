#include "generate/one_f_one_b.h"

#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kOneFOneB = "1f1b";

}  // namespace

Schedule one_f_one_b(const PipelineShape& shape) {
  require_shape(kOneFOneB, shape_error(shape));
  Schedule schedule = empty_schedule(kOneFOneB, shape, linear_placement(shape.stages));
  schedule.slices = shape.slices;
  const std::int64_t forwards = shape.micro_batches * shape.slices;
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    const auto add = [&](OpKind kind, std::int64_t i) {
      ops.push_back(sliced_op(kind, ReplicaId(0), StageId(s), i, shape.slices));
    };
    const std::int64_t warm_up = std::min(shape.stages - 1 - s + shape.slices - 1, forwards);
    for (std::int64_t i = 0; i < warm_up; ++i) add(OpKind::Forward, i);
    for (std::int64_t i = 0; i < forwards; ++i) {
      if (warm_up + i < forwards) add(OpKind::Forward, warm_up + i);
      add(OpKind::Backward, i);
    }
  }
  return schedule;
}

PaperModel one_f_one_b_model() {
  return {.critical_ops = [](const PipelineShape& shape, double) -> CriticalOps {
            const std::int64_t each = shape.micro_batches + shape.stages - 1;
            return {each, each};
          },
          // Worker w waits for w forwards at the start and w backwards at the end.
          .free_regions = [](const PipelineShape&, std::int64_t worker) -> FreeRegions {
            return {.forwards_and_backwards = worker};
          }};
}

Generator one_f_one_b_entry() {
  return {.name = kOneFOneB,
          .generate = one_f_one_b,
          .refusal = refuse_bad_counts<2>,
          .rule =
              "min(D-1-s, N) warm-up forwards, then one forward and one backward alternately, then the remaining "
              "backwards. GPipe's time with fewer activations; DAPPLE's order and Megatron's default. With k slices "
              "(Seq1F1B), each op is of a slice, and k-1 more forwards warm up.",
          .constraints = "any D, N, k",
          .closed_form = "(N+(D-1)/k)(F+B)",
          .activations = "min((D-1-s)/k+1, N)",
          .source = "Fan et al., PPoPP'21 (DAPPLE); slices: Sun et al., arXiv 2406.03488 (Seq1F1B)",
          .axes = {slices()},
          .paper = one_f_one_b_model()};
}

}  // namespace chimera
