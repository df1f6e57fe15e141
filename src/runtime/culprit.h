#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/gradient_norms.h"
#include "schedule/op.h"
#include "transport/transport.h"

namespace chimera {

/// First result of a step that was not finite.
struct Culprit {
  std::string what;     ///< equal on all ranks: "the output of stage 1 for micro-batch 3", "the gradient of wte.weight"
  bool is_own = false;  ///< this rank made it, or reports it; true on one rank
  std::optional<Op> op = {};  ///< the op that made it, if is_own
};

/// Finds the culprit of a non-finite loss or gradient norm: the first op in SpreadOrder, else a gradient. Collective
/// over all ranks. `suspects`: this worker's ops in the step with non-finite results; `squares`: the step's summed
/// squared norms (GradientNorms).
[[nodiscard]] Culprit find_culprit(const ProgramShape& shape, WorkerId worker, const GradientNorms& norms,
                                   std::span<const double> squares, const std::vector<Op>& suspects,
                                   Transport& transport);

}  // namespace chimera
