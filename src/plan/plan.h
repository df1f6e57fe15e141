#pragma once

// The planner: finds the W, D, micro-batch size, schedule and recomputation that train fastest on P workers.
//
//    PlanProblem -> candidates_of() -> Predictor::predict() for each -> make_plan(): the fastest that fit
//
// A lower bound of each candidate (least_step_seconds) orders them, so that most are never simulated. The best
// candidates with equal stages are then tried again with balanced stages. `chimera plan` and the playground print
// the ranking (answers/plan_answer.h).

#include <vector>

#include "plan/balance.h"
#include "plan/enumerate.h"
#include "plan/predict.h"

namespace chimera {

/// Rule that chooses among candidates: make_plan() or plan_by_paper_rule().
enum class PlanRule : std::uint8_t { Simulation, Paper };
template <>
inline constexpr auto kNames<PlanRule> = std::to_array<Named<PlanRule>>({{PlanRule::Simulation, "simulation"},
                                                                         {PlanRule::Paper, "paper"}});

struct RankedCandidate {
  Candidate candidate;
  Prediction prediction;
};

struct Plan {
  std::vector<RankedCandidate> ranked;  // candidates that fit, fastest first
  std::int64_t considered = 0;
  std::int64_t too_large = 0;  // candidates that exceed memory with any recomputation
  std::int64_t pruned = 0;     // candidates slower than all ranked ones, by lower bound or prediction
};

/// Ranks candidates by simulated step time, with the least recomputation (stages_to_recompute) or offloading
/// (stages_to_offload) that fits. Predicts even
/// stages in the order of lower bounds until no other candidate can be among the `top` best. If the partition is
/// Balanced, also tries balanced stages for the best max(40, `top`) and ranks each faster cut. Throws ConfigError, with
/// the least sufficient memory, if nothing fits.
[[nodiscard]] Plan make_plan(Predictor& predictor, const PlanOptions& options);

/// Returns the fastest candidate in the problem's memory, then repeatedly the fastest that needs at least 5 % less,
/// until nothing fits. Each is the best of a make_plan(). Throws ConfigError if nothing fits in the problem's memory.
[[nodiscard]] std::vector<RankedCandidate> time_against_memory(const Predictor& predictor, PlanOptions options);

/// Returns the paper's choice (Li and Hoefler, SC'21, section 3.4): Chimera with f = 1, even D, direct concatenation
/// and whole backwards. The micro-batch size of each D is the largest power of two that fits with D micro-batches in
/// flight. Recomputes only if a single sequence does not fit. `ranked` has the `top` best (0: all) by equation 1;
/// `too_large` counts depths that do not fit.
[[nodiscard]] Plan plan_by_paper_rule(Predictor& predictor, std::int64_t top = 0);

}  // namespace chimera
