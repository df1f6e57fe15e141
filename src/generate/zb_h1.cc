#include "generate/zb_h1.h"

#include "generate/zero_bubble.h"

namespace chimera {
namespace {

constexpr const char* kZbH1 = "zb-h1";

}  // namespace

Schedule zb_h1(const PipelineShape& shape) { return zero_bubble(kZbH1, shape, 1); }

Generator zb_h1_entry() {
  return {.name = kZbH1,
          .generate = zb_h1,
          .refusal = zero_bubble_refusal,
          .rule =
              "1F1B with B cut into I and W: I goes on at once, W fills what would be a bubble, and the activations "
              "stay those of 1F1B's first stage on every worker.",
          .constraints = "any D, N",
          .closed_form = "inner bubble (D-1)(F+I-W), N >= D",
          .activations = "min(D, N)",
          .source = "Qi et al., ICLR'24"};
}

}  // namespace chimera
