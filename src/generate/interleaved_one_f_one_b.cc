#include "generate/interleaved_one_f_one_b.h"

#include <algorithm>

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
  const Rounds rounds(shape);

  Schedule schedule{kInterleaved, depth * chunks, shape.micro_batches, loop_placement(depth, chunks), {}};
  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t r = 0; r < depth; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const std::int64_t warm_up = std::min(2 * (depth - 1 - r) + (chunks - 1) * rounds.group(), rounds.passes());
    for (std::int64_t k = 0; k < warm_up; ++k) ops.push_back(rounds.op(OpKind::Forward, r, k));
    for (std::int64_t k = 0; k < rounds.passes(); ++k) {
      if (warm_up + k < rounds.passes()) ops.push_back(rounds.op(OpKind::Forward, r, warm_up + k));
      ops.push_back(rounds.op(OpKind::Backward, r, k));
    }
  }
  return schedule;
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
