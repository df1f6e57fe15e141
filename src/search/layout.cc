#include "search/layout.h"

#include "core/reject.h"
#include "generate/registry.h"
#include "generate/shape.h"

namespace chimera {
namespace {

// A huge number of waves is returned as it is: require_searchable() refuses it, and twice the number could overflow.
std::int64_t stages_per_worker(PlacementKind kind, const PipelineShape& shape) {
  switch (kind) {
    case PlacementKind::Linear:
    case PlacementKind::Rotated: return 1;
    case PlacementKind::Bidirectional:
    case PlacementKind::Loop: return shape.chunks;
    case PlacementKind::Wave: return shape.waves > kMaxSearchedOps ? shape.waves : 2 * shape.waves;
  }
  return 1;
}

SearchLayout bidirectional(const PipelineShape& shape) {
  if (shape.stages % 2 != 0) {
    reject(
        "search: --stages must be even for --placement bidirectional, not {}; or choose --placement linear, v, wave or "
        "loop",
        shape.stages);
  }
  // Chimera's own generator deals the micro-batches, so that its schedules are valid starts for the search.
  PipelineShape direct = shape;
  direct.scale = ScaleMethod::Direct;
  const Schedule schedule = find_generator(kPaperSchedule).generate(direct);
  return {shape.stages, schedule.stages, schedule.placement, micro_batches_of_replicas(schedule), shape.slices};
}

SearchLayout rotated(const PipelineShape& shape) {
  const std::int64_t replicas = shape.pipelines;
  if (replicas < 1 || replicas > shape.micro_batches || shape.stages % replicas != 0) {
    reject(
        "search: --pipelines for --placement rotated must divide --stages {} and be at most --micro-batches {}, not {}",
        shape.stages, shape.micro_batches, replicas);
  }
  return {shape.stages, shape.stages, rotated_placement(shape.stages, replicas),
          assign_round_robin(shape.micro_batches, replicas), shape.slices};
}

}  // namespace

std::vector<std::vector<MicroBatchId>> assign_round_robin(std::int64_t micro_batches, std::int64_t replicas) {
  // In turn, so that the numbers of micro-batches of two replicas differ by at most one.
  std::vector<std::vector<MicroBatchId>> dealt(static_cast<std::size_t>(replicas));
  for (std::int64_t m = 0; m < micro_batches; ++m) dealt[static_cast<std::size_t>(m % replicas)].emplace_back(m);
  return dealt;
}

// The product of the factors is bounded step by step, so that it never overflows.
void require_searchable(const PipelineShape& shape, std::int64_t chunks) {
  if (const auto error = shape_error(shape, 3)) reject("search: {}", *error);
  std::int64_t ops = 3;  // F, I and W
  for (const std::int64_t factor : {shape.stages, shape.micro_batches, chunks, shape.slices}) {
    if (factor > kMaxSearchedOps / ops) {
      reject("search: {} stages per pipeline and {} micro-batches are more than {} ops; use fewer", shape.stages,
             shape.micro_batches, kMaxSearchedOps);
    }
    ops *= factor;
  }
}

SearchLayout make_search_layout(PlacementKind kind, const PipelineShape& shape) {
  const std::int64_t chunks = stages_per_worker(kind, shape);
  require_searchable(shape, chunks);
  if (kind == PlacementKind::Bidirectional) return bidirectional(shape);
  if (kind == PlacementKind::Rotated) return rotated(shape);
  // A linear placement is a loop with one stage on each worker.
  const auto place = kind == PlacementKind::Wave ? wave_placement : loop_placement;
  SearchLayout layout{shape.stages, shape.stages * chunks, place(shape.stages, chunks), {{}}, shape.slices};
  for (std::int64_t m = 0; m < shape.micro_batches; ++m) layout.micro_batches[0].emplace_back(m);
  return layout;
}

SearchLayout layout_of(const Schedule& schedule) {
  return {std::ssize(schedule.workers),        schedule.stages, schedule.placement,
          micro_batches_of_replicas(schedule), schedule.slices, schedule.micro_batch_scale};
}

// CostTable and to_schedule() need a schedule for the placement and the counts only.
Schedule without_ops(const SearchLayout& layout) {
  Schedule schedule;
  schedule.name = "search";
  schedule.stages = layout.stages;
  schedule.slices = layout.slices;
  schedule.micro_batch_scale = layout.micro_batch_scale;
  schedule.placement = layout.placement;
  for (const auto& ids : layout.micro_batches) schedule.micro_batches += static_cast<std::int64_t>(ids.size());
  schedule.workers.resize(static_cast<std::size_t>(layout.workers));
  return schedule;
}

}  // namespace chimera
