#pragma once

// Equation 1 of the paper (Li and Hoefler, SC'21, section 3.4): the time of a step in closed form, from the ops and
// messages on the critical path and the all-reduces that no bubble hides. GPipe, DAPPLE, GEMS, PipeDream and
// PipeDream-2BW use closed forms of their own makespans. Prediction (plan/predict.h) reports it next to the
// simulated time, and the paper's rule (plan_by_paper_rule) ranks by it.

#include "generate/generator.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns the model of a generator's entry, or nullptr without a closed form for this shape: for split backwards,
/// interleaved or folded stages, several chunks per worker or slices per micro-batch.
[[nodiscard]] const PaperModel* paper_model(const Generator& generator, const PipelineShape& shape);

/// Terms of equation 1, in the unit of the costs: T = (F_t + Comm_p2p) C_f + (B_t + Comm_p2p) C_b + max over workers of
/// Comm_unoverlapped.
struct EquationOne {
  double forward = 0;         // F_t, mean over stages (equal in the paper)
  double backward = 0;        // B_t, including recomputation
  double point_to_point = 0;  // Comm_p2p of a message
  CriticalOps critical;
  double all_reduce = 0;    // Comm_allreduce of the worker with the largest `unoverlapped`
  double unoverlapped = 0;  // exposed all-reduce time, maximum over workers
  double seconds = 0;       // T
};

/// Evaluates equation 1 with the `costs` of simulate(), without updates. The paper does not specify how all-reduces
/// fill free regions. Here a worker's free regions are its bubbles after the stage's last backward
/// (PaperModel::free_regions). Messages do not use them. `paper` must be the model of the schedule's generator.
[[nodiscard]] EquationOne equation_one(const PaperModel& paper, const Schedule& schedule, const PipelineShape& shape,
                                       const CostModel& costs);

}  // namespace chimera
