#pragma once

#include "schedule/schedule.h"

namespace chimera::testing {

/// Checks that the schedule survives JSON and CSV unchanged and that check() returns. If check() accepts it, its
/// programs must not deadlock, and its makespan must not be below its lower bound. Throws std::logic_error if one of
/// these does not hold.
void exercise_schedule(const Schedule& schedule);

}  // namespace chimera::testing
