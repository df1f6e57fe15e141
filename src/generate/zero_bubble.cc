#include "generate/zero_bubble.h"

#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kZbH1 = "zb-h1";
constexpr const char* kZbH2 = "zb-h2";

/// Stage s runs min(fill (D-s) - fill + k, N k) forwards. Then it runs, for each slice, its I, a W from the (fill s)-th
/// I on, and a forward if any are left; then the remaining W. `fill` is 1 or 2: the slices in flight, in multiples of
/// D, beside the k-1 that complete a micro-batch.
Schedule zero_bubble(const char* name, const PipelineShape& shape, std::int64_t fill, std::int64_t slices) {
  require_shape(name, shape_error(shape, 3));
  Schedule schedule = empty_schedule(name, shape, linear_placement(shape.stages));
  schedule.slices = slices;
  const std::int64_t slices_in_all = shape.micro_batches * slices;
  for (std::int64_t s = 0; s < shape.stages; ++s) {
    auto& ops = schedule.workers[static_cast<std::size_t>(s)];
    const auto add = [&](OpKind kind, std::int64_t i) {
      ops.push_back(sliced_op(kind, ReplicaId(0), StageId(s), i, slices));
    };
    const std::int64_t warm_up = std::min(fill * (shape.stages - s) - fill + slices, slices_in_all);
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

}  // namespace

Schedule zb_h1(const PipelineShape& shape) { return zero_bubble(kZbH1, shape, 1, shape.slices); }

Generator zb_h1_entry() {
  return {.name = kZbH1,
          .generate = zb_h1,
          .refusal = refuse_bad_counts<3>,
          .rule =
              "1F1B with B split into I and W. I continues at once, and W fills time that would be a bubble: stage s "
              "delays its first s weight gradients to the end of the step. No worker holds more activations than "
              "1F1B's first stage. If W ≤ F and W ≤ I, the makespan is N(F+I+W)+(D-1)(F+I-W)/k. With k slices each "
              "op is of a slice, and k-1 more forwards warm up.",
          .constraints = "any D, N, k",
          .closed_form = "inner bubble (D-1)(F+I-W)/k, N >= D",
          .activations = "min(1 + (D-1)/k, N)",
          .source = "Qi et al., ICLR'24; slices: ours",
          .axes = {slices()}};
}

Schedule zb_h2(const PipelineShape& shape) { return zero_bubble(kZbH2, shape, 2, 1); }

Generator zb_h2_entry() {
  return {.name = kZbH2,
          .generate = zb_h2,
          .refusal = refuse_bad_counts<3>,
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
