#pragma once
// A schedule: which worker holds which part of the model (Placement), and in which order each worker runs its ops. It
// has no tensors, messages or times. This is all of 1F1B with two stages and two micro-batches, where 1F0 is the
// forward of micro-batch 0 at stage 1 and 1B0 its backward:
//
//   placement   replica 0: stage 0 on worker 0, stage 1 on worker 1
//   worker 0    0F0 0F1 0B0 0B1
//   worker 1    1F0 1B0 1F1 1B1
//
// A *stage* is a run of consecutive layers. A bidirectional schedule has several *replicas* of the model on the same
// workers; each micro-batch belongs to one of them. Whether an op can run follows from dependencies.h alone, so the
// order is everything that a schedule decides. generate/ makes schedules from a PipelineShape, check/ proves them
// valid, simulate/ adds times, passes/lower.h adds messages and updates for the runtime.

#include <span>

#include "schedule/op.h"
#include "schedule/pipeline_shape.h"
#include "schedule/placement.h"

namespace chimera {

/// A schedule. It may be invalid, for example if it comes from a file: check/check_schedule.h checks it.
struct Schedule {
  std::string name;                // Name of its generator, or a name that the user gave
  std::int64_t stages = 0;         // S: stages of the model
  std::int64_t micro_batches = 0;  // N: micro-batches of all steps and groups in `workers`
  Placement placement;
  std::vector<std::vector<Op>> workers;  // [worker]: its ops in order
  double micro_batch_scale = 1;          // Size of a micro-batch relative to --micro-batch-size: 0.5 for Halving
  std::optional<AsynchronousUpdates> updates = std::nullopt;  // Empty: synchronous, one update at the step's end
  std::optional<OpOrder> order = std::nullopt;                // The rule that was used, if its generator has two
  bool late_forwards = false;  // Whether pictures draw forwards as late as possible, as in the paper
  std::int64_t slices = 1;     // k: slices of a micro-batch, 1 .. kMaxSlices
  /// Data-parallel groups that `workers` contains, with equally many workers each. More than 1 only if workers are lost
  /// and others run their stages (generate/detours.h); otherwise all groups run the same schedule.
  std::int64_t groups = 1;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Maximum number of ops in a schedule.
inline constexpr std::int64_t kMaxOps = 100'000'000;

/// Maximum number of slices of a micro-batch.
inline constexpr std::int64_t kMaxSlices = 256;

/// How a worker runs its pairs. A pair is a forward (Op::paired) and, right after it, a backward (B or I) of another
/// micro-batch. Together they can use hardware that one of them leaves idle.
enum class Pairs : std::uint8_t {
  InOrder,   ///< As if unpaired
  Together,  ///< Both start when all inputs are ready; both results are ready when both are done
};

/// Position of an op or instruction in a worker's list.
struct Place {
  std::size_t worker = 0;
  std::size_t position = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

/// Returns D: the number of workers of a data-parallel group.
[[nodiscard]] inline std::int64_t workers_per_group(const Schedule& schedule) {
  return std::ssize(schedule.workers) / schedule.groups;
}

/// Returns [stage]: the distinct workers that hold it in any replica, ascending. They sum its gradients.
[[nodiscard]] std::vector<std::vector<WorkerId>> stage_groups(const Placement& placement);

/// Returns [worker]: the number of its stages. A stage counts once, even if the worker holds it for several replicas.
[[nodiscard]] std::vector<std::int64_t> stages_held(const Schedule& schedule);

/// Returns [worker]: whether it holds a stage. A worker without one is lost (generate/detours.h).
[[nodiscard]] std::vector<bool> holds_a_stage(const Placement& placement, std::size_t workers);
[[nodiscard]] std::vector<std::size_t> lost_workers(const Schedule& schedule);

/// Returns whether the stage is the first or the last. These use the tied matrix of a tied model, in which token
/// embedding and output matrix are one.
[[nodiscard]] bool uses_tied_matrix(StageId stage, std::int64_t stages);

/// Returns the workers of each parameter group (dependencies.h): stage_groups(), and for a tied model one more group,
/// of the tied matrix, with the distinct workers that hold the first or the last stage, ascending.
[[nodiscard]] std::vector<std::vector<WorkerId>> gradient_groups(const Placement& placement, bool tied);

/// Returns [replica]: its micro-batches, ascending. Samples are assigned to micro-batches in this order.
[[nodiscard]] std::vector<std::vector<MicroBatchId>> micro_batches_of_replicas(const Schedule& schedule);

[[nodiscard]] std::int64_t num_ops(const Schedule& schedule);

/// Returns the number of ops that run together from `position` on: 2 for a pair that runs together, else 1.
[[nodiscard]] inline std::size_t num_concurrent(const std::vector<Op>& ops, std::size_t position, Pairs pairs) {
  return pairs == Pairs::Together && ops[position].paired && position + 1 < ops.size() ? 2 : 1;
}

/// Returns the ops that run together from `position` on.
[[nodiscard]] inline std::span<const Op> concurrent_ops(const std::vector<Op>& ops, std::size_t position, Pairs pairs) {
  return std::span(ops).subspan(position, num_concurrent(ops, position, pairs));
}

/// Returns the most forwards (of a slice at a stage) whose activations a worker with these ops holds at once.
[[nodiscard]] std::int64_t peak_in_flight(const std::vector<Op>& ops);
/// Returns the maximum of peak_in_flight() over the workers.
[[nodiscard]] std::int64_t peak_in_flight(const Schedule& schedule);
/// Returns whether a backward of the schedule is split into input and weight gradient.
[[nodiscard]] bool has_split_backwards(const Schedule& schedule);
/// Returns whether an op of the schedule is Op::paired.
[[nodiscard]] bool has_pairs(const Schedule& schedule);
/// Returns the same order of ops without pairs.
[[nodiscard]] Schedule without_pairs(Schedule schedule);

}  // namespace chimera
