#include "generate/one_f_one_b.h"

#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kOneFOneB = "1f1b";

std::optional<std::string> one_f_one_b_refusal(const PipelineShape& shape) { return shape_error(shape); }

CriticalOps one_f_one_b_critical_ops(const PipelineShape& shape, double) {
  const std::int64_t each = shape.micro_batches + shape.stages - 1;
  return {each, each};
}

/// Worker w waits for w forwards at the start and w backwards at the end.
FreeRegions one_f_one_b_free_regions(const PipelineShape&, std::int64_t worker) {
  return {.forwards_and_backwards = worker};
}

}  // namespace

Schedule one_f_one_b(const PipelineShape& shape) {
  require_shape(kOneFOneB, one_f_one_b_refusal(shape));
  Schedule schedule{.name = kOneFOneB,
                    .stages = shape.stages,
                    .micro_batches = shape.micro_batches,
                    .placement = linear_placement(shape.stages),
                    .workers = {},
                    .slices = shape.slices};
  const std::int64_t forwards = shape.micro_batches * shape.slices;
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
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

Generator one_f_one_b_entry() {
  return {.name = kOneFOneB,
          .generate = one_f_one_b,
          .refusal = one_f_one_b_refusal,
          .rule =
              "min(D-1-s, N) warm-up forwards, then one forward and one backward alternately, then the remaining "
              "backwards. GPipe's time with fewer activations; DAPPLE's order and Megatron's default. With k slices "
              "(Seq1F1B), each op is of a slice, and k-1 more forwards warm up.",
          .constraints = "any D, N, k",
          .closed_form = "(N+(D-1)/k)(F+B)",
          .activations = "min((D-1-s)/k+1, N)",
          .source = "Fan et al., PPoPP'21 (DAPPLE); slices: Sun et al., arXiv 2406.03488 (Seq1F1B)",
          .axes = {slices()},
          .paper = PaperModel{one_f_one_b_critical_ops, one_f_one_b_free_regions}};
}

}  // namespace chimera
