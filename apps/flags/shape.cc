#include "flags/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <utility>

#include "check/check_schedule.h"
#include "core/error.h"
#include "core/files.h"
#include "core/shell_words.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "schedule/schedule_csv.h"

namespace chimera::apps {
namespace {

/// Example: `2; 1 for dualpipe, hanayo`, with the most frequent default first.
std::string defaults_of(const ShapeAxis& axis) {
  std::vector<std::pair<std::string, std::vector<std::string>>> schedules_by_value;
  for (const Generator& generator : generators()) {
    const SupportedAxis* taken = find_axis(generator, axis.axis);
    if (taken == nullptr) continue;
    const std::string value = axis.text(taken->usual);
    auto found = std::ranges::find(schedules_by_value, value, [](const auto& entry) { return entry.first; });
    if (found == schedules_by_value.end()) found = schedules_by_value.insert(found, {value, {}});
    found->second.push_back(generator.name);
  }
  // The usual default needs no list of schedules.
  std::ranges::stable_sort(schedules_by_value, std::greater<>{}, [](const auto& entry) { return entry.second.size(); });
  std::string text;
  for (const auto& [value, schedules] : schedules_by_value) {
    text += text.empty() ? value : fmt::format("; {} for {}", value, fmt::join(schedules, ", "));
  }
  return text;
}

std::string help_of(const ShapeAxis& axis) {
  return fmt::format("{}; for {} (default {})", axis.meaning, fmt::join(schedules_with(axis.axis), ", "),
                     defaults_of(axis));
}

}  // namespace

void ShapeFlags::add_to(CLI::App& app, FlagValues counts) {
  begin_group(app, heading::kSchedule);
  const bool lists = counts == FlagValues::Lists;
  const auto add = [&](const char* flag, std::int64_t& value, std::string& list, const std::string& description) {
    const auto take = [&value, &list, flag, lists](const std::string& text) {
      list = text;
      if (!lists) require_no_list(flag, text);
      if (!lists || !is_list(text)) value = parse_count(flag, text);
    };
    return add_text(app, flag, take, lists ? "N|LIST" : "N", description);
  };
  stages = add("--stages", shape.stages, stages_list, "number of workers of one pipeline (D)");
  micro_batches = add("--micro-batches", shape.micro_batches, micro_batches_list,
                      "micro-batches per step and data-parallel group, over all directions (N)");
  axes.reserve(shape_axes().size());  // options keep pointers to the elements
  for (const ShapeAxis& axis : shape_axes()) {
    axes.push_back({axis});
    AxisFlag& flag = axes.back();
    const auto take_number = [&flag, lists](const std::string& text) {
      const std::string name = flag.axis.flag();
      if (!lists) require_no_list(name, text);
      flag.values = lists && is_list(text) ? parse_count_list(name, text) : std::vector{parse_count(name, text)};
    };
    const std::vector<std::string> names(axis.names.begin(), axis.names.end());
    const auto take_names = [&flag, lists, names](const std::string& text) {
      if (!lists) require_no_list(flag.axis.flag(), text);
      flag.values.clear();
      for (const std::string_view part : split_at_commas(text)) {
        const std::string name = name_for(flag.axis.flag(), std::string(part), names);
        flag.values.push_back(std::ranges::find(names, name) - names.begin());
      }
    };
    flag.option = axis.is_number()
                      ? add_text(app, axis.flag(), take_number, lists ? "N|LIST" : "N", help_of(axis))
                      : add_text(app, axis.flag(), take_names, fmt::format("{}", fmt::join(names, "|")), help_of(axis));
  }
}

std::vector<PipelineShape> ShapeFlags::combinations() const {
  if (stages_list.empty()) throw ConfigError("--stages is missing; give D, or a list such as 4,8,16");
  if (micro_batches_list.empty()) throw ConfigError("--micro-batches is missing; give N, or a list such as D,2D,4D");
  std::vector<PipelineShape> shapes;
  const auto require_few = [](std::size_t count) {
    if (count > kMaxListed)
      throw ConfigError(fmt::format("the lists name more than {} shapes; list fewer", kMaxListed));
  };
  for (const std::int64_t d : parse_count_list("--stages", stages_list)) {
    if (d < 1) throw ConfigError(fmt::format("--stages must be at least 1, not {}", d));
    // Micro-batches may be multiples of D, so their list is read for each D.
    for (const std::int64_t n : parse_count_list("--micro-batches", micro_batches_list, d)) {
      shapes.push_back({.stages = d, .micro_batches = n});
      require_few(shapes.size());
    }
  }
  for (const AxisFlag& flag : axes) {
    if (!flag.is_given()) continue;
    require_few(shapes.size() * flag.values.size());
    std::vector<PipelineShape> varied;
    for (const PipelineShape& each : shapes) {
      for (const std::int64_t value : flag.values) flag.axis.set(varied.emplace_back(each), value);
    }
    shapes = std::move(varied);
  }
  return shapes;
}

std::optional<PipelineShape> ShapeFlags::applicable_shape(const Generator& generator, const PipelineShape& one) const {
  PipelineShape asked = default_shape(generator, one.stages, one.micro_batches);
  for (const AxisFlag& flag : axes) {
    if (!flag.is_given()) continue;
    if (find_axis(generator, flag.axis.axis) != nullptr) {
      flag.axis.set(asked, flag.axis.get(one));
    } else if (flag.axis.get(one) != flag.values.front()) {
      return std::nullopt;
    }
  }
  return asked;
}

bool ShapeFlags::is_given() const {
  return stages->count() + micro_batches->count() > 0 || std::ranges::any_of(axes, &AxisFlag::is_given);
}

void ShapeFlags::require_counts(const std::string& what) const {
  if (stages->count() == 0) throw ConfigError(what + ": --stages is missing; give D, the workers of one pipeline");
  if (micro_batches->count() == 0) {
    throw ConfigError(what + ": --micro-batches is missing; give N, the micro-batches of one step");
  }
}

PipelineShape ShapeFlags::shape_for(const Generator& generator, const std::vector<std::string>& other_schedules) const {
  for (const AxisFlag& flag : axes) {
    if (!flag.is_given() || find_axis(generator, flag.axis.axis) != nullptr) continue;
    const auto takers = schedules_with(flag.axis.axis);
    // The flag is for one of the other schedules in the same picture.
    if (std::ranges::any_of(takers, [&](const auto& name) { return std::ranges::count(other_schedules, name) > 0; }))
      continue;
    std::vector<std::string> taken;
    for (const SupportedAxis& own : generator.axes) taken.push_back(shape_axis(own.axis).flag());
    throw ConfigError(fmt::format("{} does not apply to {}{}", flag.axis.flag(), generator.name,
                                  taken.empty() ? "" : fmt::format(", which takes {}", fmt::join(taken, ", "))));
  }
  return shape_of(generator, shape.stages, shape.micro_batches);
}

PipelineShape ShapeFlags::with_given_flags(const PipelineShape& usual) const {
  PipelineShape asked = usual;
  asked.stages = shape.stages;
  asked.micro_batches = shape.micro_batches;
  for (const AxisFlag& flag : axes) {
    if (flag.is_given()) flag.axis.set(asked, flag.values.front());
  }
  return asked;
}

std::vector<PipelineShape> ShapeFlags::variants(const Generator& generator, const PipelineShape& asked,
                                                VariedParameters tried) const {
  // Values for one axis may depend on those before it (SupportedAxis::planned), hence the loop over shapes so far.
  std::vector<PipelineShape> shapes = {asked};
  for (const AxisFlag& flag : axes) {
    const SupportedAxis* taken = find_axis(generator, flag.axis.axis);
    if (taken == nullptr || flag.is_given() || (tried == VariedParameters::ByCosts && !taken->by_costs)) continue;
    std::vector<PipelineShape> varied;
    for (const PipelineShape& each : shapes) {
      for (const std::int64_t value : taken->planned(each)) flag.axis.set(varied.emplace_back(each), value);
    }
    shapes = std::move(varied);
  }
  return shapes;
}

PipelineShape ShapeFlags::shape_next_to(const Schedule& schedule, const Generator& generator) const {
  return shape_of(generator, static_cast<std::int64_t>(schedule.workers.size()),
                  std::llround(static_cast<double>(schedule.micro_batches) * schedule.micro_batch_scale));
}

PipelineShape ShapeFlags::shape_of(const Generator& generator, std::int64_t depth, std::int64_t count) const {
  PipelineShape asked = default_shape(generator, depth, count);
  for (const AxisFlag& flag : axes) {
    if (flag.is_given() && find_axis(generator, flag.axis.axis) != nullptr) flag.axis.set(asked, flag.values.front());
  }
  return asked;
}

Schedule generate_as_asked(const Generator& generator, const PipelineShape& asked) { return generator.generate(asked); }

Schedule ShapeFlags::generate(const std::string& name, const std::vector<std::string>& other_schedules,
                              const MakeSchedule& make) const {
  const Generator& generator = find_generator(name);
  require_counts("schedule " + name);
  return make(generator, shape_for(generator, other_schedules));
}

bool names_schedule_file(const std::string& name) {
  return name == "-" || name.ends_with(".json") || name.ends_with(".csv") || name.find('/') != std::string::npos;
}

void require_no_shape(const ShapeFlags& shape, const std::string& what) {
  if (!shape.is_given()) return;
  throw ConfigError(what + " has a shape already; leave out --stages, --micro-batches and the other shape flags");
}

Schedule load_schedule(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // Of kMaxOpsOfFile ops
  ReadSchedule result = schedule_from_text(read_whole(path, kMostBytes), path);
  for (const std::string& note : result.notes) std::cerr << "chimera: note: " << note << '\n';
  return std::move(result.schedule);
}

Schedule read_schedule(const std::string& path) {
  Schedule schedule = load_schedule(path);
  const auto violations = check(schedule);
  if (!violations.empty()) {
    throw ScheduleError(
        fmt::format("{}: {}; `chimera check {}` lists all", path, violations.front().message, shell_word(path)));
  }
  return schedule;
}

}  // namespace chimera::apps
