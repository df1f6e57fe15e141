#include "generate/hanayo.h"

#include <utility>

#include "generate/list_schedule.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kHanayo = "hanayo";

std::optional<std::string> hanayo_refusal(const PipelineShape& shape) { return wave_refusal(shape, 2); }

/// No limits yet.
ListTask wave_task(const PipelineShape& shape) {
  return {.name = kHanayo,
          .placement = wave_placement(shape.stages, 2 * shape.waves),
          .replica_of = std::vector<ReplicaId>(static_cast<std::size_t>(shape.micro_batches))};
}

}  // namespace

Schedule hanayo(const PipelineShape& shape) {
  require_shape(kHanayo, hanayo_refusal(shape));
  const std::int64_t depth = shape.stages;
  const std::int64_t stages = 2 * shape.waves * depth;
  const auto older = [](const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 1 : 0; };
  // D micro-batches together: all of them over the workers once before the first of them comes back.
  const auto grouped = [&](const Op& op, std::int64_t age) -> std::int64_t {
    if (op.kind != OpKind::Forward) return 0;
    const std::int64_t pass = age / depth * (stages / depth) + op.stage.value() / depth;
    return 1 + pass * depth + age % depth;
  };
  ListTask by_worker = wave_task(shape);
  by_worker.worker_credits.assign(static_cast<std::size_t>(depth), stages);
  ListResult best = list_schedule(by_worker, older);
  if (shape.micro_batches > depth) {
    ListTask by_stage = wave_task(shape);
    by_stage.stage_credits.assign(1, std::vector<std::int64_t>(static_cast<std::size_t>(stages), depth));
    best = better(std::move(best), list_schedule(by_stage, older));
    best = better(std::move(best), list_schedule(by_stage, grouped));
  }
  return std::move(best.schedule);
}

Generator hanayo_entry() {
  return {.name = kHanayo,
          .generate = hanayo,
          .refusal = hanayo_refusal,
          .rule =
              "w waves: the model is cut into 2wD stages laid down and up the workers w times; ready backwards first, "
              "older micro-batches first, at most D stage units in flight.",
          .constraints = "any D, N, w",
          .closed_form = "ratio ~(2D-2)/(3wD+D-1), N=D",
          .activations = "2wD chunks",
          .source = "Liu et al., SC'23",
          .axes = {waves()},
          .stages_a_worker = [](const PipelineShape& shape) { return 2 * shape.waves; }};
}

}  // namespace chimera
