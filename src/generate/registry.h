#pragma once
// Schedules by name, for names that the user or a plan gives. Code that has a schedule reads its properties from the
// Schedule, never from its name, because a file may have any name.

#include <span>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Default for training.
inline constexpr const char* kDefaultSchedule = "chimera";

/// Schedule of the paper's selection rule.
inline constexpr const char* kPaperSchedule = "chimera";

/// Simplest schedule: any D and N.
inline constexpr const char* kPlainSchedule = "1f1b";

/// Returns all entries, in the order shown to users.
[[nodiscard]] std::span<const Generator> generators();

[[nodiscard]] std::vector<std::string> schedule_names();
[[nodiscard]] std::vector<std::string> schedules_with(Axis axis);

/// Returns the entry. Throws ConfigError, with the nearest known name, if `name` is unknown.
[[nodiscard]] const Generator& find_generator(const std::string& name);

/// Returns how the schedule takes the axis, or nullptr.
[[nodiscard]] const TakenAxis* find_axis(const Generator& generator, Axis axis);

/// Returns the shape with the schedule's defaults for all other parameters.
[[nodiscard]] PipelineShape default_shape(const Generator& generator, std::int64_t stages, std::int64_t micro_batches);

}  // namespace chimera
