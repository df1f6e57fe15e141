#pragma once

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

// Canonical (deterministic) reduction on one worker: a stage's gradients summed block by block, whatever the schedule.

// What all workers of a program know of it besides its instructions.

// Canonical reduction on one worker: the gradients of all that it holds, in blocks, whatever order the schedule has.

namespace chimera {

/// How every worker of a step adds gradients (schedule/reduction_tree.h). The copies of the stage in one group take
/// runs of micro-batches; a worker may hold several of them, and works on each run in its order.
struct CanonicalReduction {
  std::int64_t block_size = 1;   // micro-batches
  std::vector<SumOrder> orders;  // [parameter group]: what its members add, by rank
};

/// Buffers that BlockSums holds at most besides `gradients` until it has summed these subtrees, one after the other.
[[nodiscard]] std::int64_t spare_buffers(const std::vector<Subtree>& trees);

/// The gradients of one stage on one worker while backwards add to them. `gradients` is where they add: zero at first,
/// then the block under way, of one replica at a time; finished blocks are kept apart. At most max(log2(blocks), 1) + 1
/// spare buffers of its size are held for each replica.
class BlockSums {
 public:
  BlockSums(at::Tensor gradients, std::int64_t block_size);

  /// To be called before a backward of the replica: makes `gradients` hold that replica's block under way.
  void open(ReplicaId replica);
  /// To be called after the backward of the micro-batch at `position`; a replica's come in ascending order.
  void close(std::int64_t position);
  /// The sums of the replicas' runs, as whole subtrees from left to right. To be called once all blocks are finished;
  /// leaves nothing behind but zeros.
  [[nodiscard]] std::vector<at::Tensor> take();
  /// Forgets all blocks, of a step that is given up. `gradients` is to be zeroed before the next one.
  void drop() { runs_.clear(); }

 private:
  struct Run {
    TreeAdder<at::Tensor> blocks;
    std::optional<std::int64_t> first_block;
    at::Tensor under_way;  // what `gradients` held of it when another replica was opened; undefined: zeros
  };
  at::Tensor spare();

  at::Tensor gradients_;
  std::int64_t block_size_;
  std::map<ReplicaId, Run> runs_;
  ReplicaId open_{};
  std::vector<at::Tensor> spares_;
  std::vector<at::Tensor> taken_;  // spares once nobody else has them
};

/// What all executors of a program need to know of it.
struct ProgramShape {
  std::int64_t micro_batches = 0;
  RankLayout ranks;     // which the transport connects: the program's workers in every data-parallel group
  WorkerGroups groups;  // who sums which gradients; the first of each, in data-parallel group 0, answers for them
  GroupId group = {};   // data-parallel, the executor's own
  std::vector<std::string> parameters = {};  // of the model, ascending: the order in which squared norms are added;
                                             // empty: that of the stages
  const CanonicalReduction* canonical = nullptr;  // how gradients are added, borrowed; null: as they come
  std::vector<std::int64_t> positions = {};       // canonical: [micro-batch] where it stands in the step's samples
  std::vector<TensorSpec> boundaries = {};  // [S - 1] what stage s hands to s + 1, and the gradient of that, where
                                            // they differ from boundary to boundary
  bool tied = false;                        // stage 0 and the last share a matrix
  std::int64_t updates = 1;                 // of a stage in a step
  bool counts_cpu_time = false;             // whether op times have cpu_seconds, at the cost of two system calls an op

  [[nodiscard]] std::int64_t stages() const { return static_cast<std::int64_t>(groups.size()) - (tied ? 1 : 0); }
  /// The rank of a worker of the executor's own data-parallel group.
  [[nodiscard]] RankId rank(WorkerId worker) const { return ranks.rank({group, worker}); }
};

/// A BlockSums for every tensor to which backwards of the worker's stages add.
class CanonicalSums {
 public:
  /// `shape` has a canonical reduction. `tied`: the tied matrix where the worker owns one; its embedding and its head
  /// have an accumulator each. All is borrowed.
  CanonicalSums(const ProgramShape& shape, const std::map<StageId, Stage*>& stages, ParameterGroup* tied);

  /// To be called before and after an op that adds weight gradients of its stage.
  void open(const Op& op);
  void close(const Op& op);
  /// This worker's parts of a group's gradients once all its blocks are finished: whole subtrees, left to right.
  [[nodiscard]] std::vector<at::Tensor> take(ParameterGroupId group);
  /// Forgets what was added in a step that is given up.
  void drop();

 private:
  struct Accumulator {
    StageId stage;           // whose backwards add to it
    ParameterGroupId group;  // whose gradients it is part of: the stage's own, or the tied matrix's
    BlockSums blocks;
  };

  const ProgramShape& shape_;
  std::vector<Accumulator> accumulators_;
};

/// Takes a stage's gradients away from its parameters while an I runs. Layers that do not split their backward add
/// their weight gradients then, when the block of an earlier micro-batch may still wait for its W: between I and W they
/// keep them apart.
class HiddenGradients {
 public:
  /// The stage is borrowed.
  explicit HiddenGradients(Stage& stage);
  /// Gives the gradients back; what was added meanwhile becomes a part of what W owes.
  void show(WeightGradients& owed);

 private:
  Stage& stage_;
  std::vector<at::Tensor> gradients_;  // [leaf]
};

}  // namespace chimera
