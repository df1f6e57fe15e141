#pragma once
// Canonical (deterministic) reduction on one worker: a stage's gradients summed block by block, whatever the schedule.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "schedule/reduction_tree.h"

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

}  // namespace chimera
