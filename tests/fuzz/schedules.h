#pragma once
// What must hold of any schedule that was read.

#include "schedule/schedule.h"

namespace chimera::testing {

/// The schedule survives JSON and CSV unchanged, check() answers, and what check() accepts is lowered to programs that
/// cannot get stuck and simulated to a makespan no shorter than its lower bound. Throws std::logic_error where one of
/// these does not hold.
void exercise_schedule(const Schedule& schedule);

}  // namespace chimera::testing
