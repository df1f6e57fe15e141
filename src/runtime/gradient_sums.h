#pragma once

// Sums of gradients over the ranks that hold the same parameters, one collective per parameter group (a stage, or the
// tied matrix) and step. The program starts a sum when the last weight gradient of the group is complete, and waits for
// it before the optimizer step. With canonical reduction, gradients of fixed blocks of micro-batches are summed first,
// so that the sum has the same order in every schedule (canonical_sums.h). With a sharded optimizer, the sum is a
// reduce-scatter, after which each rank has the sums of the parameters that it updates.

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/canonical_sums.h"
#include "runtime/tracer.h"
#include "runtime/worker_context.h"

namespace chimera {

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
