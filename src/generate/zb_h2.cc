#include "generate/zb_h2.h"

#include "generate/zero_bubble.h"

namespace chimera {
namespace {

constexpr const char* kZbH2 = "zb-h2";

}  // namespace

Schedule zb_h2(const PipelineShape& shape) { return zero_bubble(kZbH2, shape, 2); }

Generator zb_h2_entry() {
  return {.name = kZbH2,
          .generate = zb_h2,
          .refusal = zero_bubble_refusal,
          .rule =
              "As ZB-H1 with nearly twice the warm-up forwards. No bubble inside a worker's work at equal times, at "
              "the price of 2D-1 activations; the makespan of a flushed step still holds (D-1)F.",
          .constraints = "any D, N",
          .closed_form = "inner bubble (D-1)(F+I-2W), N >= 2D-1",
          .activations = "min(2D-1, N)",
          .source = "Qi et al., ICLR'24"};
}

}  // namespace chimera
