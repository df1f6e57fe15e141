#pragma once

// Equation 1 of the Chimera paper (Li and Hoefler, SC'21, section 3.4): a formula for the time of a step, from the ops
// and messages on the critical path and the all-reduces that no bubble hides. The paper gives it for Chimera; for
// GPipe, DAPPLE, GEMS, PipeDream and PipeDream-2BW, the numbers of ops on the critical path follow from the makespans
// of these schedules. The planner reports the result next to the simulated time (Prediction::paper), and
// plan_by_paper_rule() ranks by it.

#include "generate/generator.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns the generator's numbers for equation 1 (Generator::paper), or nullptr if the equation does not apply to this
/// shape: if backwards are split, or a worker has several stages of a pipeline or runs micro-batches in slices.
[[nodiscard]] const PaperModel* paper_model(const Generator& generator, const PipelineShape& shape);

/// Terms of equation 1, in the unit of the costs: T = (F_t + Comm_p2p) C_f + (B_t + Comm_p2p) C_b + max over workers of
/// Comm_unoverlapped. C_f and C_b are the numbers of forwards and backwards on the critical path.
struct EquationOne {
  double forward = 0;         // F_t, time of a forward: mean over stages (equal in the paper)
  double backward = 0;        // B_t, time of a backward, including recomputation
  double point_to_point = 0;  // Comm_p2p, time of a message
  CriticalOps critical;       // C_f and C_b
  double all_reduce = 0;      // Comm_allreduce, all-reduce time of the worker with the largest `unoverlapped`
  double unoverlapped = 0;    // Comm_unoverlapped, all-reduce time that no bubble hides: maximum over workers
  double seconds = 0;         // T, in the unit of the costs: seconds for the planner
};

/// Evaluates equation 1 with the costs that simulate() uses, without updates. An all-reduce that starts early is hidden
/// in *free regions*, which the paper does not define exactly. Here they are the worker's bubbles after the stage's
/// last backward (PaperModel::free_regions); messages do not use them. `paper` must be the PaperModel of the schedule's
/// generator.
[[nodiscard]] EquationOne equation_one(const PaperModel& paper, const Schedule& schedule, const PipelineShape& shape,
                                       const CostModel& costs);

}  // namespace chimera
