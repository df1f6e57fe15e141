#pragma once
// The paper's performance model: a step's time as counts of forwards and backwards on the critical path.
// Source: Li and Hoefler, SC'21, section 3.4, equation 1; GPipe, DAPPLE, GEMS, PipeDream and PipeDream-2BW by the
// closed forms of their own makespans, in the same terms.

#include <cstdint>
#include <optional>
#include <string>

#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// C_f and C_b: forwards and backwards on the critical path of a step.
struct CriticalOps {
  std::int64_t forwards = 0;
  std::int64_t backwards = 0;
  friend bool operator==(const CriticalOps&, const CriticalOps&) = default;
};

/// Of a schedule with one stage a worker and whole backwards; none where the paper and the schedule's own give no
/// closed form (schedules that split backward, interleave or fold; asynchronous ones have N of each). `ratio` is B_t /
/// F_t, at least 1. Halving counts ops of half micro-batches. What N leaves over of whole units, and fewer
/// micro-batches than D, are counted as the last unit of the simulated order takes.
[[nodiscard]] std::optional<CriticalOps> critical_ops(const std::string& schedule, const PipelineShape& shape,
                                                      double ratio);

/// Equation 1 with its terms, in the unit of the costs:
/// T = (F_t + Comm_p2p) C_f + (B_t + Comm_p2p) C_b + max over workers of Comm_unoverlapped.
struct EquationOne {
  double forward = 0;         // F_t, of the mean stage: the paper has all stages alike
  double backward = 0;        // B_t, recomputation included
  double point_to_point = 0;  // Comm_p2p, of one message
  CriticalOps critical;
  double all_reduce = 0;    // Comm_allreduce of the stages of the worker that `unoverlapped` is of
  double unoverlapped = 0;  // the most of it on a worker that its free regions have no room for
  double seconds = 0;       // T
};

/// `costs` are those that simulate() takes of the schedule, one entry a stage; their updates do not count. The packing
/// of sums into free regions is not specified by the paper. Here a worker's free regions are its bubbles after the
/// stage's last backward: with Chimera (f = 1, w = min(worker, D-1-worker)) the D/2-1-w of one backward each before its
/// own last op, for the stage of larger id alone; then w of a backward at the end and w of a forward at the start of
/// the next step, for what is left of both stages. GPipe's and DAPPLE's worker w has w of each at the end and start;
/// the others have none. Messages take nothing of them.
/// None where critical_ops() is.
[[nodiscard]] std::optional<EquationOne> equation_one(const Schedule& schedule, const PipelineShape& shape,
                                                      const CostModel& costs);

}  // namespace chimera
