#include "generate/zb_v.h"

#include <algorithm>

#include "generate/shape.h"
#include "generate/two_chunks.h"

namespace chimera {
namespace {

constexpr const char* kZbV = "zb-v";

std::optional<std::string> zb_v_refusal(const PipelineShape& shape) { return insane(shape, 6); }

}  // namespace

Schedule zb_v(const PipelineShape& shape) {
  require_shape(kZbV, zb_v_refusal(shape));
  using enum Step;
  const std::int64_t depth = shape.stages;
  const std::int64_t n = std::max(shape.micro_batches, 2 * depth - 1);
  Schedule schedule{kZbV, 2 * depth, shape.micro_batches, wave_placement(depth, 2), {}};
  for (std::int64_t w = 0; w < depth; ++w) {
    TwoChunks order({.stage = StageId(w), .count = shape.micro_batches},
                    {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches});
    order.repeat(2 * (depth - w) - 1, {F0});
    order.repeat(w, {F1, F0});
    order.repeat(depth - w, {F1, I1, W1});
    order.repeat(n - (2 * depth - 1 - w), {F0, I0, W0, F1, I1, W1});
    order.repeat(depth - 1 - w, {I0, W0, F1, I1, W1});
    order.repeat(w, {I0, I1});
    order.repeat(depth - w, {I0, W0});
    order.repeat(w, {W1});
    order.repeat(w, {W0});
    schedule.workers.push_back(order.take());
  }
  return schedule;
}

Generator zb_v_entry() {
  return {.name = kZbV,
          .generate = zb_v,
          .refusal = zb_v_refusal,
          .rule =
              "Each worker holds stages r and 2D-1-r, so that a micro-batch comes back to the worker it started from; "
              "split backward. The activations of 1F1B, no replica.",
          .constraints = "any D, N",
          .closed_form = "N(F+I+W)+(D-1)max(I/2, I-W)",
          .activations = "2D halves",
          .source = "Qi et al., NeurIPS'24",
          .stages_a_worker = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
