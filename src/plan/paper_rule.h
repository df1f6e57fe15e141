#pragma once

#include "plan/plan.h"

// The paper's own way to choose W, D and the micro-batch size, without a simulator: `chimera plan --rule paper`. It
// is kept beside make_plan() (plan/plan.h) to show how far the two choices differ.

namespace chimera {

/// Returns the paper's choice (Li and Hoefler, SC'21, section 3.4): Chimera with f = 1, even D, direct concatenation
/// and whole backwards. The micro-batch size of each D is the largest power of two that fits with D micro-batches in
/// flight. Recomputes only if a single sequence does not fit. `ranked` has the `top` best (0: all) by equation 1;
/// `too_large` counts depths that do not fit.
[[nodiscard]] Plan plan_by_paper_rule(Predictor& predictor, std::int64_t top = 0);

}  // namespace chimera
