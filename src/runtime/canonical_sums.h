#pragma once
// Canonical reduction on one worker: the gradients of all that it holds, in blocks, whatever order the schedule has.

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "model/stage.h"
#include "model/weight_gradients.h"
#include "runtime/block_sums.h"
#include "runtime/program_shape.h"

namespace chimera {

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
