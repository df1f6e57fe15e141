#pragma once
// A second, independent checker of schedules and programs: slow, written from the definitions alone, without src/check.

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera::testing {

/// Replays the schedule. Returns true if all ops are there, all can run, and every worker keeps only the weight
/// versions that it may keep.
[[nodiscard]] bool plays(const Schedule& schedule);

/// Whether the program is complete and ends under every interleaving. Checks each worker's list, all lists together,
/// and that started all-reduces cannot block each other. Tries all interleavings if there are at most `most_states`
/// states, otherwise a sample.
[[nodiscard]] bool plays(const Program& program, ChannelDiscipline discipline, std::size_t most_states = 2000);

}  // namespace chimera::testing
