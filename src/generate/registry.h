#pragma once
// The list of all schedules. It finds the Generator (generator.h) for a name, such as `1f1b`, that the user or a plan
// gives. Code that has a Schedule must read its properties from the Schedule, not from the generator of its name,
// because a schedule from a file may have any name.

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Default schedule for training.
inline constexpr const char* kDefaultSchedule = "chimera";

/// Schedule for which the Chimera paper has a rule that selects the numbers of groups and stages and the micro-batch
/// size (plan_by_paper_rule() in plan/plan.h).
inline constexpr const char* kPaperSchedule = "chimera";

/// Simplest schedule, which exists for any numbers of stages and micro-batches.
inline constexpr const char* kPlainSchedule = "1f1b";

/// Returns all generators, in the order shown to users.
[[nodiscard]] std::span<const Generator> generators();

[[nodiscard]] std::vector<std::string> schedule_names();
/// Returns the names of the schedules that have this parameter.
[[nodiscard]] std::vector<std::string> schedules_with(Axis axis);

/// Returns the generator of this name. Throws ConfigError, with the nearest known name, if `name` is unknown.
[[nodiscard]] const Generator& find_generator(const std::string& name);

/// Returns the element of generator.axes for this parameter, or nullptr if the schedule does not have it.
[[nodiscard]] const SupportedAxis* find_axis(const Generator& generator, Axis axis);

/// Returns the values to try of a parameter of the schedule. `shape` has the values of the parameters before it. An
/// empty list keeps the parameter's value.
using AxisValuesOf = std::function<std::vector<std::int64_t>(const SupportedAxis& taken, const PipelineShape& shape)>;
/// Returns copies of `shape` with all combinations of these values.
[[nodiscard]] std::vector<PipelineShape> varied_shapes(const Generator& generator, const PipelineShape& shape,
                                                       const AxisValuesOf& values_of);
/// Returns the shapes of varied_shapes() that the schedule accepts.
[[nodiscard]] std::vector<PipelineShape> possible_shapes(const Generator& generator, const PipelineShape& shape,
                                                         const AxisValuesOf& values_of);

/// Returns generator.generate(shape). If the schedule does not exist for this D and N, the message of the ConfigError
/// also names schedules that do.
[[nodiscard]] Schedule generate_or_suggest(const Generator& generator, const PipelineShape& shape);

/// Returns a shape with these numbers, and the schedule's defaults for all other parameters.
[[nodiscard]] PipelineShape default_shape(const Generator& generator, std::int64_t stages, std::int64_t micro_batches);

}  // namespace chimera
