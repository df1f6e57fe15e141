#include "generate/v_min.h"

#include "generate/wave_pattern.h"

namespace chimera {
namespace {

constexpr const char* kVMin = "v-min";

}  // namespace

Schedule v_min(const PipelineShape& shape) {
  return wave_pattern(kVMin, shape, [](std::int64_t depth, std::int64_t r) -> PatternSlots {
    const std::int64_t shift = depth % 3 == 0 ? 2 : 0;  // keeps the four apart in every worker's six slots
    return {.forward_down = r,
            .forward_up = 2 * depth - 1 - r,
            .gradient_up = 2 * depth + shift + r,
            .gradient_down = 4 * depth - 1 + shift - r};
  });
}

Generator v_min_entry() {
  return {.name = kVMin,
          .generate = v_min,
          .refusal = wave_pattern_refusal,
          .rule =
              "As V-Half, but a micro-batch goes down, up and back without a wait, one every six slots: a third of "
              "1F1B's activations, and no room for latency or unequal times.",
          .constraints = "any D, N",
          .closed_form = "bubble 2D-5/2 (2D-3/2 where 3 divides D), F=I=W=1",
          .activations = "(D+4) div 3",
          .source = "Qi et al., NeurIPS'24",
          .figure = {4, 4},
          .stages_a_worker = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
