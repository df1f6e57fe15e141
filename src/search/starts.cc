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

/// A generator's schedule of the shape, under the name of its rule where it has several.
struct NamedShape {
  std::string name;
  PipelineShape shape;
};

/// The shape with each rule that the generator has for it.
std::vector<NamedShape> rules_of(const Generator& generator, const PipelineShape& shape) {
  std::vector<NamedShape> shapes = {{generator.name, shape}};
  for (const TakenAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (axis.is_number()) continue;
    std::vector<NamedShape> varied;
    for (const NamedShape& each : shapes) {
      for (const std::int64_t value : taken.planned(shape)) {
        axis.set(varied.emplace_back(each).shape, value);
        if (value != taken.usual) varied.back().name += fmt::format(" ({})", axis.text(value));
      }
    }
    shapes = varied;
  }
  std::erase_if(shapes, [&](const NamedShape& each) { return generator.refusal(each.shape).has_value(); });
  return shapes;
}

}  // namespace

std::vector<Schedule> generated_starts(const Layout& layout, const PipelineShape& shape) {
  std::vector<Schedule> starts;
  for (const Generator& generator : generators()) {
    for (const NamedShape& named : rules_of(generator, shape)) {
      Schedule schedule = generator.generate(named.shape);
      if (!fits(layout, schedule)) continue;
      schedule.name = named.name;
      starts.push_back(std::move(schedule));
    }
  }
  return starts;
}

}  // namespace chimera
