#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generate/generator.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

// The paper's performance model: a step's time as counts of forwards and backwards on the critical path.
// Source: Li and Hoefler, SC'21, section 3.4, equation 1; GPipe, DAPPLE, GEMS, PipeDream and PipeDream-2BW by the
// closed forms of their own makespans, in the same terms.

namespace chimera {

/// PaperModel::critical_ops of the schedule; none where neither the paper nor the schedule's own has a closed form
/// (schedules that split backward, interleave or fold, and shapes with several chunks a worker).
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
  double unoverlapped = 0;  // exposed: the most of it on a worker that its free regions cannot hide
  double seconds = 0;       // T
};

/// `costs` are those that simulate() takes of the schedule, one entry a stage; their updates do not count. The packing
/// of sums into free regions is not specified by the paper. Here a worker's free regions are its bubbles after the
/// stage's last backward, as PaperModel::free_regions counts them. Messages take nothing of them.
/// None where critical_ops() is, and of a schedule that the registry does not know.
[[nodiscard]] std::optional<EquationOne> equation_one(const Schedule& schedule, const PipelineShape& shape,
                                                      const CostModel& costs);

}  // namespace chimera
