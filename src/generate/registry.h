#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "schedule/schedule.h"

// The schedules that the program itself chooses where nobody names one.

// Every schedule by name. What is known of a schedule stands in its entry (generator.h), and no other part of the
// program tells schedules apart by their names.

namespace chimera {

/// What trains where the user names no schedule.
inline constexpr const char* kDefaultSchedule = "chimera";

/// The paper's own, for which its rule of choice is made.
inline constexpr const char* kPaperSchedule = "chimera";

/// The plainest schedule: one stage on each worker, any D and N.
inline constexpr const char* kPlainSchedule = "1f1b";

/// One of each kind: all forwards first, one forward and one backward, two directions, backward in two.
inline constexpr std::array kRepresentativeSchedules = {"gpipe", "1f1b", "chimera", "zb-h1"};

/// All of them, in the order of the lists that users see.
[[nodiscard]] std::span<const Generator> generators();

/// Their names.
[[nodiscard]] std::vector<std::string> schedule_names();
/// The names of those that take the axis.
[[nodiscard]] std::vector<std::string> schedules_with(Axis axis);

/// Throws ConfigError naming the nearest known one where `name` is unknown.
[[nodiscard]] const Generator& find_generator(const std::string& name);

/// The entry of that name; nullptr where there is none, as of a user's own schedule.
[[nodiscard]] const Generator* lookup_generator(const std::string& name);

/// How the schedule takes the axis; nullptr where it means nothing to it.
[[nodiscard]] const TakenAxis* find_axis(const Generator& generator, Axis axis);

/// The shape of the schedule for D and N, with every other parameter as usual.
[[nodiscard]] PipelineShape usual_shape(const Generator& generator, std::int64_t stages, std::int64_t micro_batches);

/// Whether the figures of the schedule's paper space its forwards (Generator::late_forwards). False where the name is
/// none of the registry's.
[[nodiscard]] bool draws_forwards_late(const Schedule& schedule);

}  // namespace chimera
