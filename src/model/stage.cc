#include "model/stage.h"

#include <ATen/ATen.h>

#include <utility>

namespace chimera {

std::vector<at::Tensor*> tensors_of(MicroBatch& batch) {
  std::vector<at::Tensor*> tensors;
  for (at::Tensor* tensor : {&batch.tokens, &batch.targets, &batch.target_places, &batch.token_types,
                             &batch.attention_mask, &batch.documents, &batch.next_sentence}) {
    if (tensor->defined()) tensors.push_back(tensor);
  }
  return tensors;
}

Stage::Stage(std::vector<Parameter> parameters, const TiedLeaves& tied, std::optional<at::ScalarType> compute)
    : ParameterGroup(std::move(parameters)),
      compute_type_(compute.value_or(this->parameters().front().value.scalar_type())) {
  for (const Parameter& parameter : this->parameters()) leaves_.push_back(parameter.value);
  for (const at::Tensor& leaf : {tied.embedding, tied.head}) {
    if (leaf.defined()) leaves_.push_back(leaf);
  }
}

at::Tensor Stage::for_compute(const at::Tensor& leaf) {
  if (leaf.scalar_type() == compute_type_) return leaf;
  for (std::size_t i = 0; i < copied_.size(); ++i) {
    if (copied_[i].is_same(leaf)) return copies_[i];
  }
  at::Tensor copy = leaf.detach().to(compute_type_).requires_grad_();
  at::impl::GetVariableHooks()->set_grad_dtype(copy, leaf.scalar_type());  // so that autograd adds in that type
  copy.mutable_grad() = leaf.grad();
  copied_.push_back(leaf);
  copies_.push_back(copy);
  leaves_.push_back(copy);
  return copy;
}

void Stage::update_copies() {
  const at::NoGradGuard no_graph;
  for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].copy_(copied_[i]);
}

}  // namespace chimera
