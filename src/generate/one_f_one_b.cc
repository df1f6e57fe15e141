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
  Schedule schedule{kOneFOneB, shape.stages, shape.micro_batches, linear_placement(shape.stages), {}};
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    const auto add = [&](OpKind kind, std::int64_t m) {
      ops.push_back({kind, ReplicaId(0), StageId(s), MicroBatchId(m)});
    };
    const std::int64_t warm_up = std::min(shape.stages - 1 - s, shape.micro_batches);
    for (std::int64_t m = 0; m < warm_up; ++m) add(OpKind::Forward, m);
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      if (warm_up + m < shape.micro_batches) add(OpKind::Forward, warm_up + m);
      add(OpKind::Backward, m);
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
              "backwards. GPipe's time with fewer activations; DAPPLE's order and Megatron's default.",
          .constraints = "any D, N",
          .closed_form = "(N+D-1)(F+B)",
          .activations = "min(D-s, N)",
          .source = "Fan et al., PPoPP'21 (DAPPLE)",
          .paper = PaperModel{one_f_one_b_critical_ops, one_f_one_b_free_regions}};
}

}  // namespace chimera
