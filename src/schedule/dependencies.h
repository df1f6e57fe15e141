#pragma once
// Which ops an op waits for. Forwards (F) of a micro-batch go down the stages 0 to S-1, and gradients come back up by
// whole backwards (B), or by input gradients (I) with weight gradients (W) apart:
//
//   F(0) -> F(1) -> .. -> F(S-1)
//     |       |              |         B(s), or I(s) if the backward is split, needs F(s) and the gradient of s+1;
//     v       v              v         W(s) needs I(s)
//   B(0) <- B(1) <- .. <- B(S-1)
//
// If micro-batches run in slices of their tokens, F of slice j also needs F of slice j-1 at the same stage, for its
// keys and values. B or I of slice j needs B or I of slice j+1, for the gradients of its own keys and values. OpTable
// finds the ops that an op needs, visit_in_dependency_order() visits the ops of a schedule in an order that respects
// these needs, and unit_start_times() returns a start time of every op, by which lowering (passes/lower.h) orders the
// ops of all workers. A ParameterGroupId names parameters whose gradients workers sum together.

#include <algorithm>
#include <array>
#include <limits>

#include "schedule/schedule.h"

namespace chimera {

/// Parameters whose gradients are summed together. Group s has the parameters of stage s. If the first and the last
/// stage share one matrix (tied model), this matrix is group S, for S stages.
using ParameterGroupId = Id<struct ParameterGroupTag, std::int32_t>;

/// Returns the group of the parameters of a stage.
[[nodiscard]] constexpr ParameterGroupId parameters_of(StageId stage) { return ParameterGroupId(stage.value()); }

/// Returns the group of the tied matrix in a model of `stages` stages.
[[nodiscard]] constexpr ParameterGroupId tied_matrix(std::int64_t stages) { return ParameterGroupId(stages); }

/// [parameter group]: workers that sum its gradients, from stage_groups() or gradient_groups() (schedule.h).
using WorkerGroups = std::vector<std::vector<WorkerId>>;

/// Number of an op, from 0, if the ops of all workers are numbered together, worker 0's ops first.
using OpIndex = std::uint32_t;
inline constexpr OpIndex kNoOp = std::numeric_limits<OpIndex>::max();  // No such op

/// Finds ops of a schedule by kind, stage, micro-batch and slice. Requires ids in range and at most kMaxOps ops. Ops
/// may be missing; of duplicates, the first counts. Borrows the schedule.
class OpTable {
 public:
  explicit OpTable(const Schedule& schedule);

  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }
  [[nodiscard]] OpIndex size() const { return first_.back(); }
  /// Returns the index of the worker's first op. Its ops end at first(worker + 1).
  [[nodiscard]] OpIndex first(std::size_t worker) const { return first_[worker]; }
  [[nodiscard]] std::size_t worker(OpIndex op) const { return worker_[op]; }
  [[nodiscard]] const Op& op(OpIndex op) const { return schedule_->workers[worker_[op]][op - first_[worker_[op]]]; }
  /// Returns the op or, if it is the first of a pair and pairs run together, both ops of the pair.
  [[nodiscard]] std::span<const Op> at_once(OpIndex op, Pairs pairs) const {
    return concurrent_ops(schedule_->workers[worker_[op]], op - first_[worker_[op]], pairs);
  }
  /// Returns the op, or kNoOp if the schedule lacks it.
  [[nodiscard]] OpIndex find(OpKind kind, StageId stage, MicroBatchId micro_batch, std::int64_t slice) const;
  /// Returns the op (B or I) that computes the gradient of this stage's input, or kNoOp.
  [[nodiscard]] OpIndex find_input_gradient(StageId stage, MicroBatchId micro_batch, std::int64_t slice) const;
  /// Returns the ops that the op needs; kNoOp if it needs none, or the schedule lacks the op. The first is at a
  /// neighboring stage (its result may come by message), the second at its own stage and slice, the third at its own
  /// stage in another slice.
  [[nodiscard]] std::array<OpIndex, 3> inputs(const Op& op) const;
  /// Returns the op at a neighboring stage that needs the op's result, or kNoOp.
  [[nodiscard]] OpIndex consumer(const Op& op) const;

 private:
  [[nodiscard]] std::size_t cell(StageId stage, MicroBatchId micro_batch, std::int64_t slice) const {
    return (stage.index() * micro_batches_ + micro_batch.index()) * slices_ + static_cast<std::size_t>(slice);
  }

  const Schedule* schedule_;
  std::size_t micro_batches_;
  std::size_t slices_;
  std::vector<OpIndex> first_;                     // [workers + 1]
  std::vector<std::uint32_t> worker_;              // [ops]
  std::array<std::vector<OpIndex>, kOpKinds> at_;  // [kind][cell()]; empty if the kind is unused
};

inline OpIndex OpTable::find(OpKind kind, StageId stage, MicroBatchId micro_batch, std::int64_t slice) const {
  const auto& table = at_[static_cast<std::size_t>(kind)];
  return table.empty() ? kNoOp : table[cell(stage, micro_batch, slice)];
}

inline OpIndex OpTable::find_input_gradient(StageId stage, MicroBatchId micro_batch, std::int64_t slice) const {
  const OpIndex whole = find(OpKind::Backward, stage, micro_batch, slice);
  return whole != kNoOp ? whole : find(OpKind::BackwardInput, stage, micro_batch, slice);
}

inline std::array<OpIndex, 3> OpTable::inputs(const Op& op) const {
  std::array<OpIndex, 3> inputs = {kNoOp, kNoOp, kNoOp};
  switch (op.kind) {
    case OpKind::Forward:
      if (op.stage != StageId(0))
        inputs[0] = find(OpKind::Forward, StageId(op.stage.value() - 1), op.micro_batch, op.slice);
      if (op.slice > 0) inputs[2] = find(OpKind::Forward, op.stage, op.micro_batch, op.slice - 1);
      break;
    case OpKind::Backward:
    case OpKind::BackwardInput:
      if (op.stage.value() + 1 != schedule_->stages)
        inputs[0] = find_input_gradient(StageId(op.stage.value() + 1), op.micro_batch, op.slice);
      inputs[1] = find(OpKind::Forward, op.stage, op.micro_batch, op.slice);
      if (op.slice + 1 < schedule_->slices) inputs[2] = find_input_gradient(op.stage, op.micro_batch, op.slice + 1);
      break;
    case OpKind::BackwardWeight: inputs[1] = find(OpKind::BackwardInput, op.stage, op.micro_batch, op.slice); break;
  }
  return inputs;
}

inline OpIndex OpTable::consumer(const Op& op) const {
  if (op.kind == OpKind::Forward) {
    if (op.stage.value() + 1 == schedule_->stages) return kNoOp;
    return find(OpKind::Forward, StageId(op.stage.value() + 1), op.micro_batch, op.slice);
  }
  if (!gives_input_gradient(op.kind) || op.stage == StageId(0)) return kNoOp;
  return find_input_gradient(StageId(op.stage.value() - 1), op.micro_batch, op.slice);
}

/// Visits the ops as far as they could run: a worker advances until its next op (with Pairs::Together, its next pair)
/// needs an op that has not been visited, and resumes after that op. Calls visit(OpIndex) for every visited op, after
/// the ops that it needs and after its predecessor on the worker. Returns [worker]: the number of visited ops. These
/// are all ops if and only if the needs, the workers' orders and the pairs form no cycle. The result does not depend on
/// the order of visits, because an op that can run stays able to run. Takes time linear in the number of ops.
template <class Visit>
std::vector<std::size_t> visit_in_dependency_order(const OpTable& table, Visit&& visit, Pairs pairs = Pairs::InOrder) {
  constexpr std::uint32_t kNone = 0;
  constexpr std::uint32_t kDone = std::numeric_limits<std::uint32_t>::max();
  const auto& workers = table.schedule().workers;
  std::vector<std::size_t> next(workers.size(), 0);  // [worker]: position of the next op to try
  // state[op]: kNone, kDone, or 1 + the last worker that waits for it; next_waiter[worker] links the others.
  std::vector<std::uint32_t> state(table.size(), kNone);
  std::vector<std::uint32_t> next_waiter(workers.size(), kNone);
  std::vector<std::uint32_t> ready;  // Workers that may advance
  for (std::size_t w = workers.size(); w-- > 0;) ready.push_back(static_cast<std::uint32_t>(w));
  // Returns whether the op lacks an input, and registers the worker as waiting for it.
  const auto waits = [&](std::uint32_t worker, const Op& op) {
    for (const OpIndex input : table.inputs(op)) {
      if (input == kNoOp || state[input] == kDone) continue;
      next_waiter[worker] = state[input];
      state[input] = worker + 1;
      return true;
    }
    return false;
  };
  while (!ready.empty()) {
    const std::uint32_t worker = ready.back();
    ready.pop_back();
    const std::vector<Op>& ops = workers[worker];
    for (std::size_t& position = next[worker]; position < ops.size();) {
      const auto at_once = concurrent_ops(ops, position, pairs);
      if (std::ranges::any_of(at_once, [&](const Op& op) { return waits(worker, op); })) break;
      for (const std::size_t end = position + at_once.size(); position < end; ++position) {
        const auto index = static_cast<OpIndex>(table.first(worker) + position);
        visit(index);
        std::uint32_t waiter = state[index];
        state[index] = kDone;
        for (; waiter != kNone; waiter = next_waiter[waiter - 1]) ready.push_back(waiter - 1);
      }
    }
  }
  return next;
}

/// Returns the duration of an op in unit_start_times().
[[nodiscard]] constexpr std::int64_t unit_duration(OpKind kind) { return kind == OpKind::Backward ? 2 : 1; }

/// Returns [op]: its earliest start if F, I and W take 1 unit of time, B takes 2, and messages take no time. Lowering
/// orders the ops of all workers by these times. With Pairs::Together, both ops of a pair start at the same time; the
/// result of each is ready after its own duration, but the worker is free only after the sum of both durations.
/// `worker_units` [worker] multiplies the durations of each worker's ops, if some workers are slow; empty: 1. Throws
/// ScheduleError if ops wait for each other in a cycle.
std::vector<std::int64_t> unit_start_times(const OpTable& table, Pairs pairs = Pairs::InOrder,
                                           std::span<const std::int64_t> worker_units = {});

}  // namespace chimera
