#pragma once
// Which op needs which: F(s) needs F(s-1); B(s) and I(s) need F(s) and the input gradient of s+1; W(s) needs I(s).
// Every question about time or order (simulate, check, lowering) is one walk over these dependencies.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

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

/// Visits every op that can ever run, each after all it needs and after its predecessor on the worker. Returns, for
/// each worker, how many of its ops were visited: all of them exactly if dependencies and orders form no cycle.
/// Execution is confluent (an op never disables another), so what is visited does not depend on the visiting order.
std::vector<std::size_t> visit_in_dependency_order(const OpTable& table, const std::function<void(OpIndex)>& visit);

/// Start of every op in whole units when F = I = W = 1 and B = 2, every op as soon as possible and messages take no
/// time: the topological order that lowering uses. Throws ScheduleError where the dependencies form a cycle.
std::vector<std::int64_t> unit_start_times(const OpTable& table);

}  // namespace chimera
