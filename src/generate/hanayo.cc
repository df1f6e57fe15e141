// Wave pipelines of one replica: 2w stages on each of D workers go down the workers and up again, w times. With w = 1
// and D = 3:
//
//   worker 0   stages 0 and 5      F of a micro-batch: 0 1 2 3 4 5, that is down to worker 2 and back up to worker 0
//   worker 1   stages 1 and 4      B of the same:      5 4 3 2 1 0
//   worker 2   stages 2 and 3

#include <algorithm>
#include <utility>

#include "generate/entries.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"

namespace chimera {
namespace {

template <std::int64_t kOpsEach>
std::optional<std::string> wave_refusal(const PipelineShape& shape) {
  return shape_error(shape, 2 * kOpsEach * std::clamp<std::int64_t>(shape.waves, 1, kMaxOps));
}

ListTask wave_task(const PipelineShape& shape) {
  return {.placement = wave_placement(shape.stages, 2 * shape.waves),
          .replica_of = std::vector<ReplicaId>(static_cast<std::size_t>(shape.micro_batches))};
}

std::int64_t num_chunks_of_waves(const PipelineShape& shape) { return 2 * shape.waves; }

Schedule hanayo_zb(const PipelineShape& shape) {
  return deepest_first(wave_task(shape), {.admitted = shape.stages, .most_held = 2 * shape.waves * shape.stages});
}

// For N > D no single rule is best: with credits per worker young micro-batches can hold back old ones, with credits
// per stage a worker can hold too much. The order that ends first is taken, at equal ends the one with fewer
// activations.
Schedule hanayo(const PipelineShape& shape) {
  const std::int64_t depth = shape.stages;
  const std::int64_t stages = 2 * shape.waves * depth;
  const auto older = [](const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 1 : 0; };
  // D micro-batches together: all go through the workers once before the first comes back.
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
    best = pick_better(std::move(best), list_schedule(by_stage, older));
    best = pick_better(std::move(best), list_schedule(by_stage, grouped));
  }
  return std::move(best.schedule);
}

}  // namespace

Generator hanayo_zb_entry() {
  return {.name = "hanayo-zb",
          .make = hanayo_zb,
          .find_shape_error = wave_refusal<3>,
          .rule =
              "Hanayo's waves with B split into I and W. The ready F or I that is farthest along its path runs first, "
              "and W fills free time. At most D micro-batches are in flight. For F = I = W and D | N no schedule of "
              "one replica in loop or wave placement is faster.",
          .constraints = "any D, N, w",
          .closed_form = "N(F+I+W) + (D-1)F/2w, F=I=W, D | N",
          .activations = "D",
          .source = "ours",
          .figure = {.stages = 4, .micro_batches = 4},
          .axes = {supported(Axis::Waves, 1, {1, 2})},
          .stages_per_worker = num_chunks_of_waves};
}

Generator hanayo_entry() {
  return {.name = "hanayo",
          .make = hanayo,
          .find_shape_error = wave_refusal<2>,
          .rule =
              "The model has 2wD stages, placed down and up the workers in w waves. The order is greedy at B = 2F: "
              "ready backwards run first, then older micro-batches, then deeper stages. At most D stage units are in "
              "flight. N > D has the order that ends first of three: this one, the same with D micro-batches in "
              "flight per stage, and D micro-batches at a time through the waves.",
          .constraints = "any D, N, w",
          .closed_form = "ratio ~(2D-2)/(3wD+D-1), N=D",
          .activations = "2wD chunks",
          .source = "Liu et al., SC'23",
          .axes = {supported(Axis::Waves, 1, {1, 2})},
          .stages_per_worker = num_chunks_of_waves};
}

}  // namespace chimera
