#include "generate/registry.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "core/choices.h"
#include "core/counted.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "generate/chimera.h"
#include "generate/entries.h"

namespace chimera {

std::span<const Generator> generators() {
  // clang-format off
  static const std::array all = {
      gpipe_entry(), one_f_one_b_entry(), interleaved_one_f_one_b_entry(), combined_one_f_one_b_entry(),
      looped_bfs_entry(), gems_entry(), chimera_entry(), chimera_rotated_entry(),
      zb_h1_entry(), zb_h2_entry(), interleaved_zb_entry(), zb_v_entry(),
      v_half_entry(), v_min_entry(), dualpipe_entry(), dualpipev_entry(),
      hanayo_entry(), hanayo_zb_entry(), chimera_zb_entry(), pipedream_entry(),
      pipedream_two_bw_entry(),
  };
  // clang-format on
  return all;
}

std::vector<std::string> schedule_names() { return mapped(generators(), &Generator::name); }

std::vector<std::string> schedules_with(Axis axis) {
  std::vector<std::string> names;
  for (const Generator& generator : generators())
    if (find_axis(generator, axis) != nullptr) names.push_back(generator.name);
  return names;
}

const Generator& find_generator(const std::string& name) {
  const auto found = std::ranges::find(generators(), name, &Generator::name);
  if (found != generators().end()) return *found;
  throw ConfigError(unknown_name("schedule", name, schedule_names()));
}

const SupportedAxis* find_axis(const Generator& generator, Axis axis) {
  const auto found = std::ranges::find(generator.axes, axis, &SupportedAxis::axis);
  return found == generator.axes.end() ? nullptr : &*found;
}

std::vector<PipelineShape> varied_shapes(const Generator& generator, const PipelineShape& shape,
                                         const AxisValuesOf& values_of) {
  std::vector<PipelineShape> shapes = {shape};
  for (const SupportedAxis& taken : generator.axes) {
    std::vector<PipelineShape> varied;
    for (const PipelineShape& each : shapes) {
      const std::vector<std::int64_t> values = values_of(taken, each);
      if (values.empty()) varied.push_back(each);
      for (const std::int64_t value : values) shape_axis(taken.axis).set(varied.emplace_back(each), value);
    }
    shapes = std::move(varied);
  }
  return shapes;
}

std::vector<PipelineShape> possible_shapes(const Generator& generator, const PipelineShape& shape,
                                           const AxisValuesOf& values_of) {
  std::vector<PipelineShape> shapes = varied_shapes(generator, shape, values_of);
  std::erase_if(shapes, [&](const PipelineShape& each) { return generator.find_shape_error(each).has_value(); });
  return shapes;
}

Schedule generate_or_suggest(const Generator& generator, const PipelineShape& shape) {
  constexpr std::size_t kMost = 5;
  const auto exists = [&](const Generator& one) {
    return !one.find_shape_error(default_shape(one, shape.stages, shape.micro_batches));
  };
  try {
    return generator.generate(shape);
  } catch (const ConfigError& error) {
    std::vector<std::string> names;
    for (const Generator& other : generators())
      if (other.synchronous && names.size() < kMost && exists(other)) names.push_back(other.name);
    // If the schedule exists for this D and N, another parameter is wrong, and other schedules are no remedy.
    if (names.empty() || exists(generator)) throw;
    reject("{}; {} and {} suit {}", error.what(), counted(shape.stages, "stage"),
           counted(shape.micro_batches, "micro-batch"), fmt::join(names, ", "));
  }
}

PipelineShape default_shape(const Generator& generator, std::int64_t stages, std::int64_t micro_batches) {
  PipelineShape shape{.stages = stages, .micro_batches = micro_batches};
  for (const SupportedAxis& taken : generator.axes) shape_axis(taken.axis).set(shape, taken.usual);
  return shape;
}

}  // namespace chimera
