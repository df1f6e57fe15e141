#pragma once

// Sums of gradients over the ranks that hold the same parameters, one collective per parameter group (a stage, or the
// tied matrix) and step. The program starts a sum when the last weight gradient of the group is complete, and waits for
// it before the optimizer step. With a sharded optimizer, the sum is a reduce-scatter, after which each rank has the
// sums of the parameters that it updates.
//
// With --reduction canonical, the bits of the sums do not depend on the schedule. The micro-batches of a step are
// divided into blocks of fixed size. Each block's gradients are added in the order of the samples, and the blocks in
// the order of one binary tree over the whole step (schedule/reduction_tree.h), whichever worker computed them:
//
//   micro-batches   0 1 | 2 3 | 4 5 | 6 7        blocks of two, on one worker or on several replicas
//                    A     B     C     D
//                    (A + B)  +  (C + D)         the same tree for every schedule and number of replicas
//
// BlockSums keeps the finished subtrees of one gradient tensor. GradientSums has a BlockSums for each tensor of a
// worker, and the transport adds the subtrees of several ranks.

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "model/linear.h"
#include "model/stage.h"
#include "runtime/tracer.h"
#include "runtime/worker_context.h"
#include "schedule/reduction_tree.h"

namespace chimera {

/// Returns the maximum number of buffers, each of the size of `gradients`, that BlockSums needs besides `gradients` if
/// it sums these subtrees (schedule/reduction_tree.h) one after the other.
[[nodiscard]] std::int64_t spare_buffers(const std::vector<Subtree>& trees);

/// Gradients of a stage on a worker, summed block by block. Backwards add to the tensor `gradients`, which holds the
/// current block of one replica. Sums of finished blocks are in spare buffers of the same size, at most
/// max(log2(blocks), 1) + 1 per replica. GradientSums calls open() before and close() after each backward.
class BlockSums {
 public:
  /// `gradients` is the flat tensor that the backwards add to; it must be zero before the first open() of a step.
  /// `block_size` is the number of micro-batches of a block.
  BlockSums(at::Tensor gradients, std::int64_t block_size);

  /// Makes `gradients` hold the replica's current block. Call it before a backward of the replica.
  void open(ReplicaId replica);
  /// Finishes the block that ends with the micro-batch at `position` (in the order of the samples), if any. Call it
  /// after the backward of this micro-batch. Positions must ascend for each replica.
  void close(std::int64_t position);
  /// Returns the sums of all blocks of this worker as complete subtrees of the tree, left to right in each replica. The
  /// sums stay valid while the caller keeps them. Call it when all blocks are finished; `gradients` is then zero.
  [[nodiscard]] std::vector<at::Tensor> take();
  /// Drops all blocks of an abandoned step; the caller zeros `gradients`.
  void drop() { runs_.clear(); }

 private:
  /// The blocks of one replica.
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

/// Hides a stage's gradients during an input-gradient op (I). Layers that do not split their backward add weight
/// gradients already in I. Without this class, they would add them to the current block, which may be the block of an
/// earlier micro-batch whose weight-gradient op (W) has not run yet.
class HiddenGradients {
 public:
  /// Hides the gradients. Call it before I.
  explicit HiddenGradients(Stage& stage);
  /// Restores the gradients after I. Gradients that I has added go to the queue `owed` (model/linear.h), so that W adds
  /// them.
  void show(WeightGradients& owed);

 private:
  Stage& stage_;
  std::vector<at::Tensor> gradients_;  // [leaf]
};

/// The sums of a worker's parameter groups. Borrows the context.
class GradientSums {
 public:
  explicit GradientSums(const WorkerContext& worker);

  /// Calls Transport::connect_sums() for all groups. Collective.
  void connect() const;
  /// Starts the sum of the group's gradients. `tracer`, if not null, records the time at which it is complete.
  void start(ParameterGroupId group, Tracer* tracer);
  /// Waits until the sum is complete. Throws InternalError if it has not been started.
  void wait(ParameterGroupId group);

  [[nodiscard]] bool is_canonical() const { return worker_.shape.canonical != nullptr; }
  /// Call them before and after an op that adds weight gradients. They begin or continue, and may finish, the block of
  /// the op's micro-batch. Both do nothing unless the reduction is canonical.
  void open_block(const Op& op);
  void close_block(const Op& op);

  /// Drops the sums of a step that was abandoned because a rank was lost.
  void drop();

 private:
  /// Blocks of one gradient tensor. A tied matrix has separate tensors for embedding and head.
  struct Accumulator {
    StageId stage;
    ParameterGroupId group;  // parameter group of the stage or of the tied matrix
    BlockSums blocks;
  };

  const WorkerContext& worker_;
  std::map<ParameterGroupId, std::vector<std::int64_t>> shards_;  // shard_sizes(); empty vectors: all-reduces
  std::vector<Accumulator> accumulators_;                         // empty unless the reduction is canonical
  std::unordered_map<ParameterGroupId, std::unique_ptr<Pending>> pending_;
};

}  // namespace chimera
