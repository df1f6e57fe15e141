#include "generate/interleaved_zb.h"

#include <algorithm>

#include "generate/interleaved.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kInterleavedZb = "interleaved-zb";

std::optional<std::string> interleaved_zb_refusal(const PipelineShape& shape) { return interleaved_refusal(shape, 3); }

}  // namespace

Schedule interleaved_zb(const PipelineShape& shape) {
  require_shape(kInterleavedZb, interleaved_zb_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t chunks = shape.chunks;
  const Rounds rounds(shape);
  Schedule schedule{kInterleavedZb, depth * chunks, shape.micro_batches, loop_placement(depth, chunks), {}};
  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t r = 0; r < depth; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const std::int64_t passes = rounds.passes();
    const std::int64_t warm_up = std::min((chunks - 1) * rounds.group() + depth - 1 - r, passes);
    const std::int64_t deferral = std::min(r, passes);
    for (std::int64_t k = 0; k < warm_up; ++k) ops.push_back(rounds.op(OpKind::Forward, r, k));
    for (std::int64_t k = 0; k < passes; ++k) {
      if (warm_up + k < passes) ops.push_back(rounds.op(OpKind::Forward, r, warm_up + k));
      ops.push_back(rounds.op(OpKind::BackwardInput, r, k));
      if (k >= deferral) ops.push_back(rounds.op(OpKind::BackwardWeight, r, k - deferral));
    }
    for (std::int64_t k = passes - deferral; k < passes; ++k) {
      ops.push_back(rounds.op(OpKind::BackwardWeight, r, k));
    }
  }
  return schedule;
}

Generator interleaved_zb_entry() {
  return {
      .name = kInterleavedZb,
      .generate = interleaved_zb,
      .refusal = interleaved_zb_refusal,
      .rule =
          "Interleaved 1F1B with B cut into I and W, and as few forwards ahead as ZB-H1 has: worker r holds r of its "
          "W back, which fill what would be bubbles. PyTorch's ScheduleInterleavedZeroBubble, order for order.",
      .constraints = "N < D or a multiple of N div D",
      .closed_form = "N(F+I+W) + (D-1)max(F,I,F+I-W)/v at D | N",
      .activations = "D at D | N",
      .source = "Qi et al., ICLR'24 (ZB-H1); PyTorch",
      .figure = {4, 4},
      .axes = {looped_chunks()},
      .stages_a_worker = [](const PipelineShape& shape) { return shape.chunks; }};
}

}  // namespace chimera
