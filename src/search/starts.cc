#include "search/starts.h"

#include <fmt/format.h>

#include "generate/registry.h"

namespace chimera {
namespace {

bool fits(const Layout& layout, const Schedule& schedule) {
  if (schedule.placement != layout.placement || schedule.stages != layout.stages) return false;
  if (schedule.updates || schedule.micro_batch_scale != 1) return false;
  const auto dealt = micro_batches_of_replicas(schedule);
  for (std::size_t r = 0; r < dealt.size(); ++r) {
    if (dealt[r].size() != layout.micro_batches[r].size()) return false;
  }
  return true;
}

/// The shape's schedules: of each generator one, or as many as it has methods to scale.
std::vector<Schedule> schedules_of(const Generator& generator, PipelineShape shape) {
  std::vector<Schedule> schedules;
  const ShapeAxis& scale = shape_axis(Axis::Scale);
  const std::size_t methods = find_axis(generator, Axis::Scale) == nullptr ? 1 : scale.names.size();
  for (std::size_t method = 0; method < methods; ++method) {
    scale.set(shape, static_cast<std::int64_t>(method));
    if (generator.refusal(shape)) continue;
    schedules.push_back(generator.generate(shape));
    if (method > 0) schedules.back().name += fmt::format(" ({})", scale.names[method]);
  }
  return schedules;
}

}  // namespace

std::vector<Schedule> generated_starts(const Layout& layout, const PipelineShape& shape) {
  std::vector<Schedule> starts;
  for (const Generator& generator : generators()) {
    for (Schedule& schedule : schedules_of(generator, shape)) {
      if (fits(layout, schedule)) starts.push_back(std::move(schedule));
    }
  }
  return starts;
}

}  // namespace chimera
