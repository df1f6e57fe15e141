#include "fastest.h"

#include <span>
#include <utility>

namespace chimera::apps {

ShapedSchedule fastest_of(const Generator& generator, const std::vector<PipelineShape>& shapes,
                          const std::function<double(const Schedule&)>& makespan) {
  ShapedSchedule best{shapes.front(), generator.generate(shapes.front())};
  if (shapes.size() == 1) return best;
  double least = makespan(best.schedule);
  for (const PipelineShape& shape : std::span(shapes).subspan(1)) {
    ShapedSchedule other{shape, generator.generate(shape)};
    const double time = makespan(other.schedule);
    if (time >= least) continue;
    least = time;
    best = std::move(other);
  }
  return best;
}

}  // namespace chimera::apps
