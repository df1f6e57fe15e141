#include "generate/v_half.h"

#include "generate/wave_pattern.h"

namespace chimera {
namespace {

constexpr const char* kVHalf = "v-half";

}  // namespace

Schedule v_half(const PipelineShape& shape) {
  return wave_pattern(kVHalf, shape, [](std::int64_t depth, std::int64_t r) -> PatternSlots {
    const std::int64_t shift = depth % 2 == 0 ? 3 : 0;  // keeps the four apart in every worker's six slots
    return {.forward_down = 2 * r,
            .forward_up = 3 * depth - 2 - r,
            .gradient_up = 3 * depth - 1 + shift + 2 * r,
            .gradient_down = 6 * depth - 2 + shift - r};
  });
}

Generator v_half_entry() {
  return {.name = kVHalf,
          .generate = v_half,
          .refusal = wave_pattern_refusal,
          .rule =
              "Each worker holds stages r and 2D-1-r, as in ZB-V; one pattern of F and I, repeated every six slots: a "
              "forward goes down the workers at half speed and up again at full speed, and so does the gradient on its "
              "way back. W fills the free slots. All workers hold about half of what 1F1B's first does.",
          .constraints = "any D, N",
          .closed_form = "bubble 7D/4-1 (even D), 7(D-1)/4 (odd), F=I=W=1",
          .activations = "(D+2) div 2",
          .source = "Qi et al., NeurIPS'24",
          .figure = {4, 4},
          .stages_a_worker = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
