#pragma once

#include <string>
#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// The rows around a counter-example, each place in brackets: `  worker 1 | ... 1B0 [1F1] 1B1`. Ends with a line end
/// where there is a place.
[[nodiscard]] std::string excerpt(const Schedule& schedule, const std::vector<Place>& places);

}  // namespace chimera
