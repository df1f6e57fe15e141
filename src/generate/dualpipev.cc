#include "generate/dualpipev.h"

#include <fmt/format.h>

#include "generate/dualpipe_order.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kDualpipev = "dualpipev";

std::optional<std::string> dualpipev_refusal(const PipelineShape& shape) {
  if (auto refused = insane(shape, 6)) return refused;
  if (shape.micro_batches >= 2 * shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least 2D = {}, not {}", 2 * shape.stages, shape.micro_batches);
}

}  // namespace

Schedule dualpipev(const PipelineShape& shape) {
  require_shape(kDualpipev, dualpipev_refusal(shape));
  const std::int64_t depth = shape.stages;
  Schedule schedule{kDualpipev, 2 * depth, shape.micro_batches, wave_placement(depth, 2), {}};
  for (std::int64_t w = 0; w < depth; ++w) {
    schedule.workers.push_back(dualpipe_order({.stage = StageId(w), .count = shape.micro_batches},
                                              {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches}, w,
                                              depth));
  }
  return schedule;
}

Generator dualpipev_entry() {
  return {.name = kDualpipev,
          .generate = dualpipev,
          .refusal = dualpipev_refusal,
          .rule = "DualPipe folded at its middle: one replica, stages r and 2D-1-r on worker r.",
          .constraints = "N >= 2D",
          .closed_form = "bubble (D-1)(F+I-W)/2",
          .activations = "2D+1 halves",
          .source = "DeepSeek-AI, DualPipe, 2025",
          .stages_a_worker = [](const PipelineShape&) { return std::int64_t{2}; }};
}

}  // namespace chimera
