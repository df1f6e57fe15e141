#include "generate/interleaved_one_f_one_b.h"

#include <fmt/format.h>

#include <algorithm>

#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kInterleaved = "interleaved-1f1b";

std::int64_t num_groups(const PipelineShape& shape) {
  return std::max<std::int64_t>(1, shape.micro_batches / shape.stages);
}

std::optional<std::string> interleaved_one_f_one_b_refusal(const PipelineShape& shape) {
  if (auto refused = loop_refusal(shape)) return refused;
  if (shape.micro_batches % num_groups(shape) == 0) return std::nullopt;
  return fmt::format(
      "--micro-batches must be a multiple of N div D = {}, not {} (N below D or a multiple of D always is)",
      num_groups(shape), shape.micro_batches);
}

}  // namespace

Schedule interleaved_one_f_one_b(const PipelineShape& shape) {
  require_shape(kInterleaved, interleaved_one_f_one_b_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t chunks = shape.chunks;
  const std::int64_t group = shape.micro_batches / num_groups(shape);  // at a stage before the worker turns to the next
  const std::int64_t passes = shape.micro_batches * chunks;            // forwards of a worker

  Schedule schedule{kInterleaved, depth * chunks, shape.micro_batches, loop_placement(depth, chunks), {}};
  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t r = 0; r < depth; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const auto add = [&](OpKind kind, std::int64_t k) {
      const std::int64_t turn = k % (group * chunks) / group;
      const std::int64_t chunk = kind == OpKind::Forward ? turn : chunks - 1 - turn;
      const std::int64_t micro_batch = k / (group * chunks) * group + k % group;
      ops.push_back({kind, ReplicaId(0), StageId(chunk * depth + r), MicroBatchId(micro_batch)});
    };
    const std::int64_t warm_up = std::min(2 * (depth - 1 - r) + (chunks - 1) * group, passes);
    for (std::int64_t k = 0; k < warm_up; ++k) add(OpKind::Forward, k);
    for (std::int64_t k = 0; k < passes; ++k) {
      if (warm_up + k < passes) add(OpKind::Forward, warm_up + k);
      add(OpKind::Backward, k);
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
