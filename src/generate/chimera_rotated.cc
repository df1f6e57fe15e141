// Chimera with rotated instead of reversed pipelines: all replicas run in one direction, each starting some workers
// after the one before. On four workers with two replicas (stages by replica):
//
//   worker       0  1  2  3
//   replica 0    0  1  2  3    enters at worker 0
//   replica 1    2  3  0  1    enters at worker 2, where replica 0's first micro-batch arrives two ops later

#include <fmt/format.h>

#include <algorithm>

#include "generate/entries.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"
#include "generate/sliced_units.h"

namespace chimera {
namespace {

std::optional<std::string> rotated_refusal(const PipelineShape& shape) {
  if (auto refused = shape_error(shape)) return refused;
  if (shape.pipelines < 2 || shape.stages % shape.pipelines != 0)
    return fmt::format("--pipelines must be 2 or more and divide --stages {}, not {}", shape.stages, shape.pipelines);
  if (shape.stages > kMaxOps / shape.pipelines)
    return fmt::format("{} pipelines of {} stages are more than {} stages in all; use fewer of either", shape.pipelines,
                       shape.stages, kMaxOps);
  return std::nullopt;
}

SupportedAxis rotated_pipelines() {
  return {.axis = Axis::Pipelines, .usual = 2, .planned = [](const PipelineShape& shape) {
            std::vector<std::int64_t> divisors;
            for (const std::int64_t count : {2, 4})
              if (shape.stages % count == 0) divisors.push_back(count);
            return divisors;
          }};
}

Schedule chimera_rotated(const PipelineShape& shape) {
  ListTask task{.placement = rotated_placement(shape.stages, shape.pipelines)};
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) task.replica_of.emplace_back(m % shape.pipelines);
  const std::int64_t distance = shape.stages / shape.pipelines;
  if (shape.slices > 1) {
    task.slices = shape.slices;
    const std::int64_t least = sliced_credits(shape);
    const CreditRange credits{least, least + std::max(shape.stages, shape.slices)};
    // The bound of docs/slices.md, if the F of a slice takes 1 and its B takes 2.
    const std::int64_t deadline = 3 * (shape.micro_batches * shape.slices + distance - 1);
    return with_fewest_credits(std::move(task), older_then_deeper(shape), credits, deadline).schedule;
  }
  // Forwards have priority, so this limit decides when a worker turns to its backwards.
  task.worker_credits.assign(static_cast<std::size_t>(shape.stages), shape.stages + distance);
  const auto forwards_first = [](const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 0 : 1; };
  return list_schedule(task, forwards_first).schedule;
}

}  // namespace

Generator chimera_rotated_entry() {
  return {
      .name = "chimera-rotated",
      .make = chimera_rotated,
      .find_shape_error = rotated_refusal,
      .rule =
          "2f replicas run through the workers in one direction, each starting D/2f workers after the previous one "
          "(rotated instead of reversed). While the first micro-batches of one replica move down, those of the next "
          "replica fill the workers ahead. Micro-batch m is in replica m mod 2f. Forwards run first while a worker "
          "holds less than D + D/2f. The closed form holds for any F and B; Chimera needs (D/2-1)(B-F) more. For "
          "N > D the makespan is close to (N+D/2f-1)(F+B). With k slices (`docs/slices.md`) a worker holds as few "
          "slices as reach the lower bound.",
      .constraints = "D a multiple of 2f, any N, k",
      .closed_form = "N(F+B) + (D/2f-1)(F+B)/k, N=D",
      .activations = "min(N, D + D/2f); 1 < k <= D: 2f + (2D-2f)/k",
      .source = "ours, by search over placements",
      .figure = {.stages = 4, .micro_batches = 4},
      .axes = {rotated_pipelines(), slices()},
      .replicas = [](const PipelineShape& shape) { return shape.pipelines; }};
}

}  // namespace chimera
