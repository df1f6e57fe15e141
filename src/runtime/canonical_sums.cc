#include "runtime/canonical_sums.h"

#include <ATen/ATen.h>

#include <utility>

namespace chimera {

CanonicalSums::CanonicalSums(const ProgramShape& shape, const std::map<StageId, Stage*>& stages, ParameterGroup* tied)
    : shape_(shape) {
  const auto accumulate = [&](StageId stage, ParameterGroupId group, const at::Tensor& gradients) {
    accumulators_.push_back({stage, group, BlockSums(gradients, shape.canonical->block_size)});
  };
  for (const auto& [id, stage] : stages) accumulate(id, parameters_of(id), stage->gradients());
  if (tied == nullptr) return;
  const ParameterGroupId matrix = tied_matrix(shape.stages());
  const StageId first(0);
  const StageId last(shape.stages() - 1);
  if (stages.contains(first)) accumulate(first, matrix, tied->accumulators().front());
  if (stages.contains(last)) accumulate(last, matrix, tied->accumulators().back());
}

void CanonicalSums::open(const Op& op) {
  for (Accumulator& sum : accumulators_) {
    if (sum.stage == op.stage) sum.blocks.open(op.replica);
  }
}

void CanonicalSums::close(const Op& op) {
  for (Accumulator& sum : accumulators_) {
    if (sum.stage == op.stage) sum.blocks.close(shape_.positions[op.micro_batch.index()]);
  }
}

std::vector<at::Tensor> CanonicalSums::take(ParameterGroupId group) {
  std::vector<at::Tensor> parts;
  for (Accumulator& sum : accumulators_) {
    if (sum.group != group) continue;
    for (at::Tensor& part : sum.blocks.take()) parts.push_back(std::move(part));
  }
  return parts;
}

void CanonicalSums::drop() {
  for (Accumulator& sum : accumulators_) sum.blocks.drop();
}

HiddenGradients::HiddenGradients(Stage& stage) : stage_(stage) {
  for (at::Tensor leaf : stage.leaves()) gradients_.push_back(std::exchange(leaf.mutable_grad(), at::Tensor()));
}

void HiddenGradients::show(WeightGradients& owed) {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    at::Tensor leaf = stage_.leaves()[i];
    const at::Tensor added = std::exchange(leaf.mutable_grad(), gradients_[i]);
    if (added.defined()) owed.hand_over([sum = gradients_[i], added] { sum.add_(added); });
  }
}

}  // namespace chimera
