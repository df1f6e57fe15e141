#pragma once

#include <string>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// The grid around a counter-example: one row for each worker that has a place in it, ascending, with each place in
/// brackets and four ops around it: `  worker 1 | ... 1B0 [1F1] 1B1 ... 1F5 [1B3]`. Every row ends with a line end.
[[nodiscard]] std::string excerpt(const Schedule& schedule, const std::vector<Place>& places);

/// The same of a program, two instructions around each place: `  worker 1 | ... 1F0; [wait for 0F1 from worker 0] ...`.
[[nodiscard]] std::string excerpt(const Program& program, const std::vector<Place>& places);

}  // namespace chimera
