#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/ids.h"
#include "schedule/schedule.h"

// What is summed together: the gradients of each stage, and above them those of a tied matrix.

// Which op needs which: F(s) needs F(s-1); B(s) and I(s) need F(s) and the input gradient of s+1; W(s) needs I(s).
// Every question about time or order (simulate, check, lowering) is one walk over these dependencies.

namespace chimera {

/// Parameters whose gradients the same workers sum in one go: group s are those of stage s alone. A tied matrix, which
/// belongs to no stage, is the group above the last stage's.
using ParameterGroupId = Id<struct ParameterGroupTag, std::int32_t>;

/// The parameters of a stage, without a tied matrix.
[[nodiscard]] constexpr ParameterGroupId parameters_of(StageId stage) { return ParameterGroupId(stage.value()); }

/// The tied matrix of a model that is cut into `stages`.
[[nodiscard]] constexpr ParameterGroupId tied_matrix(std::int64_t stages) { return ParameterGroupId(stages); }

/// The workers that sum the gradients of each parameter group, [group], ascending and distinct: what stage_groups()
/// and, of a model that may be tied, gradient_groups() give.
using WorkerGroups = std::vector<std::vector<WorkerId>>;

/// Number of an op counted over all workers: worker 0's ops first, in order.
using OpIndex = std::uint32_t;
inline constexpr OpIndex kNoOp = std::numeric_limits<OpIndex>::max();

/// Finds ops by what they do. Requires ids in range (stage < S, micro-batch < N, at most kMostOps ops); ops may be
/// missing, and of a doubled op the first counts. Holds a reference to the schedule.
class OpTable {
 public:
  explicit OpTable(const Schedule& schedule);

  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }
  [[nodiscard]] OpIndex size() const { return first_.back(); }
  /// The index of worker w's op at `position`; first(w + 1) ends its ops.
  [[nodiscard]] OpIndex first(std::size_t worker) const { return first_[worker]; }
  [[nodiscard]] std::size_t worker(OpIndex op) const { return worker_[op]; }
  [[nodiscard]] const Op& op(OpIndex op) const { return schedule_->workers[worker_[op]][op - first_[worker_[op]]]; }
  /// The ops that run as one from `op` on, where a pair or a single op begins.
  [[nodiscard]] std::span<const Op> at_once(OpIndex op, Pairs pairs) const {
    return ops_at_once(schedule_->workers[worker_[op]], op - first_[worker_[op]], pairs);
  }
  /// The op of that kind, stage and micro-batch; kNoOp where the schedule has none.
  [[nodiscard]] OpIndex find(OpKind kind, StageId stage, MicroBatchId micro_batch) const;
  /// The op (B or I) that gives the gradient of the stage's input; kNoOp where none does.
  [[nodiscard]] OpIndex find_input_gradient(StageId stage, MicroBatchId micro_batch) const;
  /// What the op needs besides its predecessor on the worker: at most two ops, kNoOp elsewhere. The first one is made
  /// at another stage (and may arrive by message), the second one at the op's own.
  [[nodiscard]] std::array<OpIndex, 2> inputs(const Op& op) const;
  /// The op that needs this op's result at a neighbouring stage; kNoOp where none does.
  [[nodiscard]] OpIndex consumer(const Op& op) const;

 private:
  const Schedule* schedule_;
  std::vector<OpIndex> first_;                     // [workers + 1]
  std::vector<std::uint32_t> worker_;              // [ops]
  std::array<std::vector<OpIndex>, kOpKinds> at_;  // [kind][stage * N + micro_batch]; empty where the kind is not used
};

inline OpIndex OpTable::find(OpKind kind, StageId stage, MicroBatchId micro_batch) const {
  const auto& table = at_[static_cast<std::size_t>(kind)];
  if (table.empty()) return kNoOp;
  return table[stage.index() * static_cast<std::size_t>(schedule_->micro_batches) + micro_batch.index()];
}

inline OpIndex OpTable::find_input_gradient(StageId stage, MicroBatchId micro_batch) const {
  const OpIndex whole = find(OpKind::Backward, stage, micro_batch);
  return whole != kNoOp ? whole : find(OpKind::BackwardInput, stage, micro_batch);
}

inline std::array<OpIndex, 2> OpTable::inputs(const Op& op) const {
  switch (op.kind) {
    case OpKind::Forward:
      if (op.stage == StageId(0)) return {kNoOp, kNoOp};
      return {find(OpKind::Forward, StageId(op.stage.value() - 1), op.micro_batch), kNoOp};
    case OpKind::Backward:
    case OpKind::BackwardInput: {
      const OpIndex forward = find(OpKind::Forward, op.stage, op.micro_batch);
      if (op.stage.value() + 1 == schedule_->stages) return {kNoOp, forward};
      return {find_input_gradient(StageId(op.stage.value() + 1), op.micro_batch), forward};
    }
    case OpKind::BackwardWeight: return {kNoOp, find(OpKind::BackwardInput, op.stage, op.micro_batch)};
  }
  return {kNoOp, kNoOp};
}

inline OpIndex OpTable::consumer(const Op& op) const {
  if (op.kind == OpKind::Forward) {
    if (op.stage.value() + 1 == schedule_->stages) return kNoOp;
    return find(OpKind::Forward, StageId(op.stage.value() + 1), op.micro_batch);
  }
  if (!gives_input_gradient(op.kind) || op.stage == StageId(0)) return kNoOp;
  return find_input_gradient(StageId(op.stage.value() - 1), op.micro_batch);
}

/// How far a run has come: which ops are done, and which workers wait for an op. A worker advances until its next op
/// lacks an input, and goes on when that input is done; each op is tried once and once more for every input it waited
/// for, so a run is linear in the ops.
class DependencyWalk {
 public:
  /// Where pairs run together, both ops of one wait for the inputs of both.
  explicit DependencyWalk(const OpTable& table, Pairs pairs = Pairs::InOrder);

  /// Calls visit(OpIndex) for every op that can ever run, each after all it needs and after its predecessor on the
  /// worker.
  template <class Visit>
  void run(Visit&& visit) {
    while (!ready_.empty()) {
      const std::uint32_t worker = ready_.back();
      ready_.pop_back();
      advance(worker, visit);
    }
  }

  /// For each worker, how many of its ops were visited.
  [[nodiscard]] std::vector<std::size_t> visited() const;

 private:
  // state_[op]: kNone, or 1 + the worker that was last to wait for it (next_waiter_ has the others), or kDone.
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kDone = std::numeric_limits<std::uint32_t>::max();

  template <class Visit>
  void advance(std::uint32_t worker, Visit&& visit) {
    const std::vector<Op>& ops = table_.schedule().workers[worker];
    const OpIndex first = table_.first(worker);
    for (std::size_t& position = next_[worker]; position < ops.size();) {
      const std::size_t end = position + num_at_once(ops, position, pairs_);
      for (std::size_t i = position; i < end; ++i) {
        if (waits(worker, ops[i])) return;
      }
      for (; position < end; ++position) {
        const auto index = static_cast<OpIndex>(first + position);
        visit(index);
        std::uint32_t waiter = state_[index];
        state_[index] = kDone;
        for (; waiter != kNone; waiter = next_waiter_[waiter - 1]) ready_.push_back(waiter - 1);
      }
    }
  }

  /// Whether the worker has to wait for an input of the op; then it is noted as waiting.
  bool waits(std::uint32_t worker, const Op& op) {
    for (const OpIndex input : table_.inputs(op)) {
      if (input == kNoOp || state_[input] == kDone) continue;
      next_waiter_[worker] = state_[input];
      state_[input] = worker + 1;
      return true;
    }
    return false;
  }

  const OpTable& table_;
  Pairs pairs_;
  std::vector<std::uint32_t> state_;        // [op]
  std::vector<std::uint32_t> next_waiter_;  // [worker]: as state_, of the op that the worker waits for
  std::vector<std::size_t> next_;           // [worker]: position of the op to be tried next
  std::vector<std::uint32_t> ready_;        // workers that may advance
};

/// Visits every op that can ever run, each after all it needs and after its predecessor on the worker. Returns, for
/// each worker, how many of its ops were visited: all of them exactly if dependencies and orders (and pairs, where they
/// run together) form no cycle.
/// Execution is confluent (an op never disables another), so what is visited does not depend on the visiting order.
template <class Visit>
std::vector<std::size_t> visit_in_dependency_order(const OpTable& table, Visit&& visit, Pairs pairs = Pairs::InOrder) {
  DependencyWalk walk(table, pairs);
  walk.run(visit);
  return walk.visited();
}

/// The duration of an op in unit_start_times().
[[nodiscard]] constexpr std::int64_t unit_duration(OpKind kind) { return kind == OpKind::Backward ? 2 : 1; }

/// Start of every op in whole units when F = I = W = 1 and B = 2, every op as soon as possible and messages take no
/// time: the topological order that lowering uses. The ops of a pair that runs together have one start; each is done
/// after its own duration, and the worker after both. Throws ScheduleError where the dependencies form a cycle.
std::vector<std::int64_t> unit_start_times(const OpTable& table, Pairs pairs = Pairs::InOrder);

}  // namespace chimera
