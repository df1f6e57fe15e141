#pragma once
// A second opinion on schedules and programs, written from their definitions alone: slow, plain, nothing of src/check.

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera::testing {

/// Plays the schedule: its ops are all there, each is tried again and again until nothing moves, and every worker keeps
/// the weight versions it may keep.
[[nodiscard]] bool plays(const Schedule& schedule);

/// Whether the program does all it should, whatever the interleaving: its lists mean something, each worker by itself
/// and all together; started all-reduces cannot block each other; and every interleaving ends at the end (all of them
/// where there are at most `most_states` states, some otherwise).
[[nodiscard]] bool plays(const Program& program, ChannelDiscipline discipline, std::size_t most_states = 2000);

}  // namespace chimera::testing
