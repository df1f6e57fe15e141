#pragma once

// Gradient sums whose bits do not depend on the schedule (--reduction canonical). The micro-batches of a step are
// divided into blocks of fixed size. Each block's gradients are added in data order, and the blocks in the order of one
// binary tree over the whole step (schedule/reduction_tree.h), whichever worker computed them:
//
//   micro-batches   0 1 | 2 3 | 4 5 | 6 7        blocks of two, on one worker or on several replicas
//                    A     B     C     D
//                    (A + B)  +  (C + D)         the same tree for every schedule and number of replicas
//
// BlockSums keeps finished subtrees of one gradient tensor, CanonicalSums has one for each tensor of a worker, and the
// transport adds the subtrees of several ranks.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "model/linear.h"
#include "model/stage.h"
#include "schedule/rank_layout.h"
#include "schedule/reduction_tree.h"
#include "transport/message.h"

namespace chimera {

/// Fixed order in which all workers add gradients (schedule/reduction_tree.h). Each copy of a stage processes a run of
/// micro-batches in order, and their slices in reverse order.
struct CanonicalReduction {
  std::int64_t block_size = 1;   // micro-batches
  std::vector<SumOrder> orders;  // [parameter group]: parts of its members, by rank
};

/// Returns the maximum number of buffers that BlockSums needs, besides `gradients`, while it sums these subtrees in
/// turn.
[[nodiscard]] std::int64_t spare_buffers(const std::vector<Subtree>& trees);

/// Gradients of a stage on a worker, summed block by block. `gradients` holds a replica's current block. Finished
/// blocks use spare buffers of its size, at most max(log2(blocks), 1) + 1 per replica.
class BlockSums {
 public:
  BlockSums(at::Tensor gradients, std::int64_t block_size);

  /// Makes `gradients` hold the replica's current block. Call it before a backward of the replica.
  void open(ReplicaId replica);
  /// Finishes the block that ends at `position`, if any. Called after the backward of that micro-batch; ascending for
  /// each replica.
  void close(std::int64_t position);
  /// Returns the sums of the replicas' runs as whole subtrees, left to right, and leaves zeros. Call it once all blocks
  /// are finished.
  [[nodiscard]] std::vector<at::Tensor> take();
  /// Drops all blocks of an abandoned step; the caller zeros `gradients`.
  void drop() { runs_.clear(); }

 private:
  struct Run {
    TreeAdder<at::Tensor> blocks;
    std::optional<std::int64_t> first_block;
    at::Tensor under_way;  // saved while another replica is open; undefined: zeros
  };
  at::Tensor spare();

  at::Tensor gradients_;
  std::int64_t block_size_;
  std::map<ReplicaId, Run> runs_;
  ReplicaId open_{};
  std::vector<at::Tensor> spares_;
  std::vector<at::Tensor> taken_;  // returned buffers, reused once released
};

/// Properties of a program besides its instructions.
struct ProgramShape {
  std::int64_t micro_batches = 0;
  RankLayout ranks;     // the program's workers in every data-parallel group
  WorkerGroups groups;  // by parameter group; the first worker in data-parallel group 0 reports on it
  GroupId group = {};   // the executor's data-parallel group
  // names, ascending: the order of squared norms; empty: ordered by parameter group
  std::vector<std::string> parameters = {};
  const CanonicalReduction* canonical = nullptr;  // borrowed; null: gradients are added in execution order
  std::vector<std::int64_t> positions = {};       // canonical only: [micro-batch] position in the step's samples
  // [S - 1]: tensor from stage s to s + 1, and its gradient; empty if all are equal
  std::vector<TensorSpec> boundaries = {};
  // [k + 1]: first token of each slice, and the tokens of a sequence; empty: micro-batches run whole
  std::vector<std::int64_t> slice_bounds = {};
  bool tied = false;             // stage 0 and the last stage share a matrix
  bool scatters = false;         // sums are reduce-scatters: each rank gets those of its own parameters (owners_of)
  std::int64_t updates = 1;      // number of updates per stage and step
  bool counts_cpu_time = false;  // measures cpu_seconds of ops, at two system calls per op

  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(groups.size()) - (tied ? 1 : 0); }
  [[nodiscard]] RankId rank(WorkerId worker) const { return ranks.rank({group, worker}); }
};

/// A BlockSums for each gradient tensor of the worker's stages.
class CanonicalSums {
 public:
  /// `shape` must have a canonical reduction. `tied` is the tied matrix if this worker owns it, with separate
  /// accumulators for embedding and head. All are borrowed.
  CanonicalSums(const ProgramShape& shape, const std::map<StageId, Stage*>& stages, ParameterGroup* tied);

  /// Called before and after an op that adds weight gradients.
  void open(const Op& op);
  void close(const Op& op);  // a micro-batch ends with its slice 0
  /// Returns this worker's parts of a group's gradients as whole subtrees, left to right, once all blocks are finished.
  [[nodiscard]] std::vector<at::Tensor> take(ParameterGroupId group);
  /// Drops the sums of an abandoned step.
  void drop();

 private:
  struct Accumulator {
    StageId stage;
    ParameterGroupId group;  // parameter group of the stage or of the tied matrix
    BlockSums blocks;
  };

  const ProgramShape& shape_;
  std::vector<Accumulator> accumulators_;
};

/// Hides a stage's gradients during I. Layers that do not split their backward add weight gradients in I, possibly into
/// the block of an earlier micro-batch that still waits for its W.
class HiddenGradients {
 public:
  explicit HiddenGradients(Stage& stage);
  /// Restores the gradients, and defers the gradients added meanwhile to W.
  void show(WeightGradients& owed);

 private:
  Stage& stage_;
  std::vector<at::Tensor> gradients_;  // [leaf]
};

}  // namespace chimera
