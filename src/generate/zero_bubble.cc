#include "generate/zero_bubble.h"

#include <algorithm>

#include "generate/shape.h"

namespace chimera {

std::optional<std::string> zero_bubble_refusal(const PipelineShape& shape) { return shape_error(shape, 3); }

Schedule zero_bubble(const char* name, const PipelineShape& shape, std::int64_t fill) {
  require_shape(name, zero_bubble_refusal(shape));
  Schedule schedule{.name = name,
                    .stages = shape.stages,
                    .micro_batches = shape.micro_batches,
                    .placement = linear_placement(shape.stages),
                    .workers = {},
                    .slices = shape.slices};
  const std::int64_t slices_in_all = shape.micro_batches * shape.slices;
  schedule.workers.resize(static_cast<std::size_t>(shape.stages));
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    const auto add = [&](OpKind kind, std::int64_t i) {
      ops.push_back(sliced_op(kind, ReplicaId(0), StageId(s), i, shape.slices));
    };
    const std::int64_t warm_up = std::min(fill * (shape.stages - s) - fill + shape.slices, slices_in_all);
    const std::int64_t deferral = std::min(fill * s, slices_in_all);
    for (std::int64_t i = 0; i < warm_up; ++i) add(OpKind::Forward, i);
    for (std::int64_t i = 0; i < slices_in_all; ++i) {
      add(OpKind::BackwardInput, i);
      if (i >= deferral) add(OpKind::BackwardWeight, i - deferral);
      if (warm_up + i < slices_in_all) add(OpKind::Forward, warm_up + i);
    }
    for (std::int64_t i = slices_in_all - deferral; i < slices_in_all; ++i) add(OpKind::BackwardWeight, i);
  }
  return schedule;
}

namespace {

constexpr const char* kZbH1 = "zb-h1";

}  // namespace

Schedule zb_h1(const PipelineShape& shape) { return zero_bubble(kZbH1, shape, 1); }

Generator zb_h1_entry() {
  return {
      .name = kZbH1,
      .generate = zb_h1,
      .refusal = zero_bubble_refusal,
      .rule =
          "1F1B with B split into I and W. I continues at once, and W fills time that would be a bubble. No "
          "worker holds more activations than 1F1B's first stage. With k slices each op is of a slice, and k-1 more "
          "forwards warm up.",
      .constraints = "any D, N, k",
      .closed_form = "inner bubble (D-1)(F+I-W)/k, N >= D",
      .activations = "min(1 + (D-1)/k, N)",
      .source = "Qi et al., ICLR'24; slices: ours",
      .axes = {slices()}};
}

namespace {

constexpr const char* kZbH2 = "zb-h2";

}  // namespace

Schedule zb_h2(const PipelineShape& shape) {
  PipelineShape whole = shape;
  whole.slices = 1;
  return zero_bubble(kZbH2, whole, 2);
}

Generator zb_h2_entry() {
  return {.name = kZbH2,
          .generate = zb_h2,
          .refusal = zero_bubble_refusal,
          .rule =
              "ZB-H1 with nearly twice the warm-up forwards. At equal op times there is no bubble between a worker's "
              "first and last op, but a worker holds 2D-1 activations. The makespan of a flushed step still contains "
              "(D-1)F.",
          .constraints = "any D, N",
          .closed_form = "inner bubble (D-1)(F+I-2W), N >= 2D-1",
          .activations = "min(2D-1, N)",
          .source = "Qi et al., ICLR'24"};
}

}  // namespace chimera
