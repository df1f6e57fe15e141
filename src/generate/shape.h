#pragma once
// Functions that several generators share. A generator (generator.h) makes one kind of schedule, of any legal shape: D
// workers, N micro-batches and other parameters. It first rejects shapes that it cannot schedule, with shape_error() or
// a similar function. It then calls empty_schedule() with one of the placements below (which worker holds which stage),
// and appends the ops of each worker.

#include <utility>

#include "generate/generator.h"
#include "schedule/schedule.h"

namespace chimera {

/// Returns why no schedule can have this shape: D, N or another parameter is too small, or there would be more than
/// kMaxOps ops (`ops_each` per worker and micro-batch). Returns nullopt if the shape is possible.
[[nodiscard]] std::optional<std::string> shape_error(const PipelineShape& shape, std::int64_t ops_each = 2);

/// Value of Generator::find_shape_error for a schedule that accepts all D and N: calls shape_error().
template <std::int64_t kOpsEach>
[[nodiscard]] std::optional<std::string> reject_bad_counts(const PipelineShape& shape) {
  return shape_error(shape, kOpsEach);
}

/// Returns an error message if `stages` (D) is odd or not positive, else nullopt. `reason` says why the schedule needs
/// an even D.
[[nodiscard]] std::optional<std::string> odd_stages_error(std::int64_t stages, const char* reason);

/// Returns why no schedule with several stages per worker (PipelineShape::chunks) has this shape: the result of
/// shape_error(), or too many ops with `ops_each` per stage and micro-batch. Returns nullopt if the shape is possible.
[[nodiscard]] std::optional<std::string> loop_shape_error(const PipelineShape& shape, std::int64_t ops_each);

/// Returns a schedule with the shape's D workers and N micro-batches and the stages of the placement. The workers have
/// no ops yet.
[[nodiscard]] Schedule empty_schedule(const PipelineShape& shape, Placement placement);

/// Returns the same with order_of(w) as the ops of worker w.
template <class OrderOf>
[[nodiscard]] Schedule ordered_schedule(const PipelineShape& shape, Placement placement, const OrderOf& order_of) {
  Schedule schedule = empty_schedule(shape, std::move(placement));
  for (std::int64_t w = 0; w < shape.stages; ++w) schedule.workers[static_cast<std::size_t>(w)] = order_of(w);
  return schedule;
}

/// Returns the i-th op of this kind on a stage, from 0. Micro-batches are in ascending order; the `slices` slices of
/// each are ascending in forwards and descending in backwards.
[[nodiscard]] Op sliced_op(OpKind kind, ReplicaId replica, StageId stage, std::int64_t i, std::int64_t slices);

/// Returns an entry for Generator::axes with the same planned values for all D and N.
[[nodiscard]] SupportedAxis supported(Axis axis, std::int64_t usual, std::vector<std::int64_t> planned);

/// Returns an entry for Generator::axes: the schedule accepts --slices, by default 1, and a planner tries only 1.
[[nodiscard]] SupportedAxis slices();

/// Returns the placement that puts stage s of replica r on worker worker_of(r, s).
template <class WorkerOf>
[[nodiscard]] Placement placement_by(std::int64_t replicas, std::int64_t stages, const WorkerOf& worker_of) {
  Placement placement;
  for (std::int64_t r = 0; r < replicas; ++r) {
    auto& row = placement.worker_of.emplace_back();
    for (std::int64_t s = 0; s < stages; ++s) row.emplace_back(worker_of(r, s));
  }
  return placement;
}

/// Returns a placement with two replicas in opposite directions: stage s on worker s in the first, and on worker D-1-s
/// in the second.
[[nodiscard]] Placement opposite_placement(std::int64_t stages);

/// Returns a placement with one replica of D x `chunks` stages on D workers: stage s on worker s mod D.
[[nodiscard]] Placement loop_placement(std::int64_t workers, std::int64_t chunks);

/// Returns a placement with replicas in the same direction that begin at evenly spaced workers: stage s of replica r on
/// worker (r D / `replicas` + s) mod D.
[[nodiscard]] Placement rotated_placement(std::int64_t stages, std::int64_t replicas);

/// Returns the worker of a stage if stages go down the workers and up again in waves. With 4 workers, stages 0 to 9 are
/// on workers 0 1 2 3 3 2 1 0 0 1.
[[nodiscard]] std::int64_t wave_worker(std::int64_t stage, std::int64_t workers);

/// Returns the worker's stage number `chunk`, from 0, in the placement of wave_worker().
[[nodiscard]] std::int64_t wave_stage(std::int64_t worker, std::int64_t chunk, std::int64_t workers);

/// Returns a placement with one replica of D x `chunks` stages on D workers: stage s on worker wave_worker(s, D).
[[nodiscard]] Placement wave_placement(std::int64_t workers, std::int64_t chunks);

/// An op and the time slot in which it runs, from 0.
struct SlottedOp {
  std::int64_t slot = 0;
  Op op;
};

/// Fills bubbles with weight gradients. A backward that is split is an input gradient (I), which other workers wait
/// for, and a weight gradient (W), which can wait. A generator places only forwards (F) and I in *slots*, time steps of
/// equal length; the W go into the free slots:
///
///   slots of F and I    F0  .  F1 I0  .  I1  .          order    F0 F1 I0 W0 I1 W1
///
/// Returns one worker's order of ops: the given F and I in the order of their slots, which are distinct, and a W for
/// each I. Each free slot gets the W of the oldest I that has none yet. If slots do not suffice, the remaining W come
/// last.
[[nodiscard]] std::vector<Op> with_weight_gradients(std::vector<SlottedOp> entries);

}  // namespace chimera
