#pragma once

#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Whether a schedule is one: every (stage, micro-batch) forwarded once and run backward once (B, or I and W), by one
/// replica, on the worker that holds the stage, and the workers' orders free of cycles with the dependencies.
/// Returns all violations (of missing ops the first ten thousand places, then their number), none exactly if the
/// schedule may be lowered. Never throws; takes any ids.
[[nodiscard]] std::vector<Violation> check(const Schedule& schedule);

}  // namespace chimera
