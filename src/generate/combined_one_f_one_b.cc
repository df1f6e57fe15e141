#include "generate/combined_one_f_one_b.h"

#include "generate/interleaved.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kCombined = "combined-1f1b";

std::optional<std::string> combined_refusal(const PipelineShape& shape) { return interleaved_refusal(shape, 2); }

}  // namespace

Schedule combined_one_f_one_b(const PipelineShape& shape) {
  require_shape(kCombined, combined_refusal(shape));
  return {kCombined, shape.stages * shape.chunks, shape.micro_batches, loop_placement(shape.stages, shape.chunks),
          one_f_one_b_in_rounds(shape, /*pairs=*/true)};
}

Generator combined_one_f_one_b_entry() {
  return {.name = kCombined,
          .generate = combined_one_f_one_b,
          .refusal = combined_refusal,
          .rule =
              "Interleaved 1F1B with one warm-up forward more, so that the forward and the backward of every turn are "
              "a pair.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+D/v stages",
          .source = "NVIDIA, Megatron-LM, 2025",
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

}  // namespace chimera
