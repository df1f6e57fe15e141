#include "search/starts.h"

#include "core/error.h"
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

}  // namespace

std::vector<Schedule> generated_starts(const Layout& layout, const PipelineShape& shape) {
  std::vector<Schedule> starts;
  for (const Generator& generator : generators()) {
    for (const ScaleMethod scale : {ScaleMethod::Direct, ScaleMethod::Doubling}) {
      if (scale != ScaleMethod::Direct && !takes(generator, "--scale")) continue;
      PipelineShape asked = shape;
      asked.scale = scale;
      try {
        Schedule schedule = generator.generate(asked);
        if (scale == ScaleMethod::Doubling) schedule.name += " (doubling)";
        if (fits(layout, schedule)) starts.push_back(std::move(schedule));
      } catch (const ConfigError&) {  // no such schedule of this shape
      }
    }
  }
  return starts;
}

}  // namespace chimera
