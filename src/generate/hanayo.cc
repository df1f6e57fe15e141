#include "generate/hanayo.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"

namespace chimera {
namespace {

/// No limits yet.
ListTask wave_task(const PipelineShape& shape) {
  const std::int64_t turn = 2 * shape.stages;
  ListTask task{.name = "hanayo", .replica_of = std::vector<ReplicaId>(static_cast<std::size_t>(shape.micro_batches))};
  auto& row = task.placement.worker_of.emplace_back();
  for (std::int64_t s = 0; s < shape.waves * turn; ++s) row.emplace_back(std::min(s % turn, turn - 1 - s % turn));
  return task;
}

}  // namespace

Schedule hanayo(const PipelineShape& shape) {
  if (shape.waves < 1) throw ConfigError(fmt::format("hanayo: --waves must be at least 1, not {}", shape.waves));
  require_sane("hanayo", shape, 4 * std::min(shape.waves, kMostOps));
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

}  // namespace chimera
