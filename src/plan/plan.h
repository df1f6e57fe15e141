#pragma once

// The planner: finds the configuration that trains fastest on a given number of workers: data-parallel width, pipeline
// depth, micro-batch size, schedule, partition and recomputation.
//
//    PlanProblem -> list_candidates() -> Predictor::predict() for each -> make_plan(): the fastest that fit
//
// make_plan() visits the candidates in the order of a lower bound of their step times (least_step_seconds), and stops
// when no other candidate can be among the best, so that most are never simulated. All first have even partitions
// (equal numbers of layers per stage); the best are then tried again with balanced partitions (balance.h). `chimera
// plan` and the playground print the ranking (answers/plan_answer.h).

#include "plan/balance.h"
#include "plan/enumerate.h"
#include "plan/predict.h"

namespace chimera {

/// Rule that chooses among candidates: make_plan() or plan_by_paper_rule().
enum class PlanRule : std::uint8_t { Simulation, Paper };
template <>
inline constexpr auto kNames<PlanRule> = in_order<PlanRule>("simulation", "paper");

/// Relative difference of step times below which two candidates on one machine tie: about the error of their ratio. The
/// error of absolute times is larger, but has the same sign for all rows.
inline constexpr double kTie = 0.03;

/// A candidate with its prediction.
struct RankedCandidate {
  Candidate candidate;
  Prediction prediction;
};

/// Result of the planner.
struct Plan {
  // The best candidates that fit in memory. First those that tie with the fastest, in ascending order of peak memory;
  // then the others, fastest first.
  std::vector<RankedCandidate> ranked;
  std::int64_t tied = 0;        // number of rows of `ranked` that tie with the fastest, itself included
  std::int64_t considered = 0;  // number of all candidates
  std::int64_t too_large = 0;   // candidates that exceed memory whatever they recompute
  std::int64_t pruned = 0;      // candidates slower than all ranked ones, by lower bound or prediction
};

/// Ranks the candidates of the problem by simulated step time, and returns the `top` best (PlanOptions::top). Each
/// candidate recomputes (blocks_to_recompute or stages_to_recompute in worker_memory.h: the faster) or offloads
/// (blocks_to_offload) as little as its memory requires. If PlanOptions::partition is Balanced, also tries balanced
/// partitions for the best max(40, `top`) candidates, and keeps each that is faster. With PlanOptions::may_shard,
/// candidates that do not fit, or recompute or offload, are also tried with a sharded optimizer. Throws ConfigError,
/// with the memory that would suffice, if no candidate fits.
[[nodiscard]] Plan make_plan(Predictor& predictor, const PlanOptions& options);

/// Returns a Pareto front of step time and memory: the best candidate in the problem's memory, then the best that needs
/// at least 5 % less memory than this one, and so on, until nothing fits. Each is the first of a Plan. Throws
/// ConfigError if nothing fits in the problem's memory.
[[nodiscard]] std::vector<RankedCandidate> plan_pareto_front(const Predictor& predictor, PlanOptions options);

/// Plans by the rule of the paper (Li and Hoefler, SC'21, section 3.4). Considers Chimera with two pipelines, each even
/// number of stages D, `--scale direct` and whole backwards. For each D, the micro-batch size is the largest power of
/// two that fits in memory with D micro-batches in flight. Recomputes only if a micro-batch of one sequence does not
/// fit. Plan::ranked has the `top` best (0: all) by equation 1; Plan::too_large is the number of D that do not fit.
/// Throws ConfigError if no D divides the workers, or none fits.
[[nodiscard]] Plan plan_by_paper_rule(Predictor& predictor, std::int64_t top = 0);

}  // namespace chimera
