#include "generate/interleaved_one_f_one_b.h"

#include "generate/interleaved.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kInterleaved = "interleaved-1f1b";

std::optional<std::string> interleaved_one_f_one_b_refusal(const PipelineShape& shape) {
  return interleaved_refusal(shape, 2);
}

}  // namespace

Schedule interleaved_one_f_one_b(const PipelineShape& shape) {
  require_shape(kInterleaved, interleaved_one_f_one_b_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t chunks = shape.chunks;
  return {kInterleaved, depth * chunks, shape.micro_batches, loop_placement(depth, chunks),
          one_f_one_b_in_rounds(shape, /*pairs=*/false)};
}

Generator interleaved_one_f_one_b_entry() {
  return {.name = kInterleaved,
          .generate = interleaved_one_f_one_b,
          .refusal = interleaved_one_f_one_b_refusal,
          .rule =
              "Each worker holds v stages, chunk c of worker r being stage cD+r; micro-batches go round in groups of "
              "D (of N div max(1, N div D) where D does not divide N). Fewer bubbles, v times the messages.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+(D-1)/v stages",
          .source = "Narayanan et al., SC'21 (Megatron-LM)",
          .axes = {looped_chunks()},
          .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

}  // namespace chimera
