// visit() reads the fields, as single values and as lists. The other functions combine what is given with the defaults
// of a generator; shape_request.h says which caller uses which.

#include "answers/shape_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/choices.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "generate/registry.h"

namespace chimera {
namespace {

/// Example: `2; 1 for chimera, chimera-zb`, with the most frequent default first.
std::string defaults_of(const ShapeAxis& axis) {
  std::map<std::string, std::vector<std::string>> schedules;  // by default value
  for (const Generator& generator : generators()) {
    const SupportedAxis* taken = find_axis(generator, axis.axis);
    if (taken != nullptr) schedules[axis.text(taken->usual)].push_back(generator.name);
  }
  const auto usual = std::ranges::max_element(schedules, {}, [](const auto& entry) { return entry.second.size(); });
  std::string text = usual->first;
  for (const auto& [value, names] : schedules)
    if (value != usual->first) text += fmt::format("; {} for {}", value, fmt::join(names, ", "));
  return text;
}

std::string help_of(const ShapeAxis& axis) {
  return fmt::format("{}; for {} (default {})", axis.meaning, fmt::join(schedules_with(axis.axis), ", "),
                     defaults_of(axis));
}

std::vector<std::int64_t> numbers_of(const ShapeAxis& axis, const std::string& text, bool lists) {
  return lists && is_list(text) ? parse_count_list(axis.flag(), text) : std::vector{parse_count(axis.flag(), text)};
}

std::vector<std::int64_t> named_values_of(const ShapeAxis& axis, const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string_view part : split_at_commas(text)) {
    const auto found = std::ranges::find(axis.names, part);
    if (found == axis.names.end())
      throw ConfigError(
          unknown_name(axis.flag(), part, std::vector<std::string>(axis.names.begin(), axis.names.end())));
    // The value of a name is its place (ShapeAxis::names).
    values.push_back(found - axis.names.begin());
  }
  return values;
}

}  // namespace

void ShapeRequest::visit(Door& door, FieldValues counts) {
  const bool lists = counts == FieldValues::Lists;
  const char* const type = lists ? "N|LIST" : "N";
  const auto add = [&](const Field& field, std::int64_t& value, std::string& list) {
    door.text(field, [&value, &list, lists, flag = field.flag_name()](const std::string& text) {
      if (!lists) require_no_list(flag, text);
      // The text is kept even for one value: it tells that the field is given, and N may be a multiple of D, such as
      // `2D`.
      list = text;
      if (!lists || !is_list(text)) value = parse_count(flag, text);
    });
  };
  door.group("Schedule and shape");
  add({"stages", "number of workers of one pipeline (D)", type}, shape.stages, stages_list);
  add({"micro_batches", "micro-batches per step and data-parallel group, over all directions (N)", type},
      shape.micro_batches, micro_batches_list);
  door.object("parameters", [&](Door& parameters) {
    for (AxisValues& given : axes) {
      const std::string words = fmt::format("{}", fmt::join(given.axis->names, "|"));
      parameters.text({std::string(given.axis->name), help_of(*given.axis), words.empty() ? type : words},
                      [&given, lists](const std::string& text) {
                        if (!lists) require_no_list(given.axis->flag(), text);
                        given.values = given.axis->is_number() ? numbers_of(*given.axis, text, lists)
                                                               : named_values_of(*given.axis, text);
                      });
    }
  });
}

const AxisValues& ShapeRequest::values_of(Axis axis) const {
  return *std::ranges::find(axes, axis, [](const AxisValues& each) { return each.axis->axis; });
}

std::vector<PipelineShape> ShapeRequest::listed_counts() const {
  require_counts("sweep");
  std::vector<PipelineShape> shapes;
  const auto require_few = [](std::size_t count) {
    if (count > kMaxListed) reject("the lists name more than {} shapes; list fewer", kMaxListed);
  };
  for (const std::int64_t d : parse_count_list("--stages", stages_list)) {
    if (d < 1) reject("--stages must be at least 1, not {}", d);
    // Micro-batches may be multiples of D, so their list is read for each D.
    for (const std::int64_t n : parse_count_list("--micro-batches", micro_batches_list, d)) {
      shapes.push_back({.stages = d, .micro_batches = n});
      require_few(shapes.size());
    }
  }
  std::size_t count = shapes.size();
  for (const AxisValues& given : axes) {
    if (given.is_given()) count *= given.values.size();
    require_few(count);
  }
  return shapes;
}

std::vector<PipelineShape> ShapeRequest::listed_shapes(const Generator& generator, const PipelineShape& counts) const {
  return varied_shapes(generator, default_shape(generator, counts.stages, counts.micro_batches),
                       [&](const SupportedAxis& taken, const PipelineShape&) { return values_of(taken.axis).values; });
}

bool ShapeRequest::is_given() const {
  return !stages_list.empty() || !micro_batches_list.empty() || std::ranges::any_of(axes, &AxisValues::is_given);
}

void ShapeRequest::require_counts(const std::string& what) const {
  if (stages_list.empty()) reject("{}: --stages is missing; give D, the workers of one pipeline", what);
  if (micro_batches_list.empty()) reject("{}: --micro-batches is missing; give N, the micro-batches of one step", what);
}

PipelineShape ShapeRequest::shape_for(const Generator& generator,
                                      const std::vector<std::string>& other_schedules) const {
  for (const AxisValues& given : axes) {
    if (!given.is_given() || find_axis(generator, given.axis->axis) != nullptr) continue;
    const auto takers = schedules_with(given.axis->axis);
    // The flag is for one of the other schedules in the same picture.
    if (std::ranges::any_of(takers, [&](const auto& name) { return std::ranges::count(other_schedules, name) > 0; }))
      continue;
    const auto taken = mapped(generator.axes, [](const auto& own) { return shape_axis(own.axis).flag(); });
    reject("{} does not apply to {}{}", given.axis->flag(), generator.name,
           taken.empty() ? "" : fmt::format(", which takes {}", fmt::join(taken, ", ")));
  }
  return listed_shapes(generator, shape).front();
}

PipelineShape ShapeRequest::with_given_values(PipelineShape usual) const {
  usual.stages = shape.stages;
  usual.micro_batches = shape.micro_batches;
  for (const AxisValues& given : axes)
    if (given.is_given()) given.axis->set(usual, given.values.front());
  return usual;
}

std::vector<PipelineShape> ShapeRequest::variants(const Generator& generator, const PipelineShape& asked,
                                                  VariedParameters tried) const {
  return varied_shapes(generator, asked, [&](const SupportedAxis& taken, const PipelineShape& one) {
    const bool varies = !values_of(taken.axis).is_given() && (tried == VariedParameters::All || taken.by_costs);
    return varies ? taken.planned(one) : std::vector<std::int64_t>();
  });
}

PipelineShape ShapeRequest::shape_next_to(const Schedule& schedule, const Generator& generator) const {
  // Halving has doubled the number; N counts full micro-batches.
  const auto count = std::llround(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale);
  return listed_shapes(generator, {.stages = std::ssize(schedule.workers), .micro_batches = count}).front();
}

Schedule ShapeRequest::generate(const std::string& name, const std::vector<std::string>& other_schedules,
                                const MakeSchedule& make) const {
  const Generator& generator = find_generator(name);
  require_counts("schedule " + name);
  return make(generator, shape_for(generator, other_schedules));
}

void ShapeRequest::require_absent(const std::string& what) const {
  if (!is_given()) return;
  throw ConfigError(what + " has a shape already; leave out --stages, --micro-batches and the other shape flags");
}

}  // namespace chimera
