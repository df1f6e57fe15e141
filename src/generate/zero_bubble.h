#pragma once
// What ZB-H1 and ZB-H2 share: 1F1B with the backward split, and weight gradients held back to fill bubbles.

#include <optional>
#include <string>

#include "schedule/schedule.h"

namespace chimera {

/// The order on stage s: min(fill (D-s) - fill + 1, N) forwards; then, for each micro-batch in turn, its I, from the
/// (fill s)-th I on the next W, and a forward while there are any; then the remaining W. `fill` is 1 or 2: how many
/// pipelines' worth of micro-batches are at work. Throws ConfigError, naming `name`, if D or N is not positive.
[[nodiscard]] Schedule zero_bubble(const char* name, const PipelineShape& shape, std::int64_t fill);

/// Why ZB-H1 and ZB-H2 do not take the shape: they take any D and N.
[[nodiscard]] std::optional<std::string> zero_bubble_refusal(const PipelineShape& shape);

}  // namespace chimera
