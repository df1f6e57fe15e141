#pragma once
// Who is to blame once a loss or the gradient norm is not finite.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/gradient_norms.h"
#include "schedule/op.h"
#include "transport/transport.h"

namespace chimera {

/// What was not finite first, in words that are the same on every rank, and whether it was made here.
struct Culprit {
  std::string what;           ///< "the output of stage 1 for micro-batch 3", "the gradient of wte.weight"
  bool is_own = false;        ///< this rank made it, or reports on it; true on one rank
  std::optional<Op> op = {};  ///< where is_own and an op made it: that op
};

/// Asked by all ranks together, as all have the same sums: one more sum tells all of them the same culprit. `suspects`:
/// ops of this worker in that step whose results were not finite; `squares`: the step's squared norms (GradientNorms),
/// summed. An op comes before a gradient, and of ops the one from which the others can have got it.
[[nodiscard]] Culprit find_culprit(const ProgramShape& shape, WorkerId worker, const GradientNorms& norms,
                                   std::span<const double> squares, const std::vector<Op>& suspects,
                                   Transport& transport);

}  // namespace chimera
