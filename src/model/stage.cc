#include "model/stage.h"

#include <ATen/ATen.h>
#include <utility>

#include "model/key_value_cache.h"

namespace chimera {

std::vector<at::Tensor*> tensors_of(MicroBatch& batch) {
  std::vector<at::Tensor*> tensors;
  for (at::Tensor* tensor : {&batch.tokens, &batch.targets, &batch.target_indices, &batch.token_types,
                             &batch.attention_mask, &batch.documents, &batch.next_sentence})
    if (tensor->defined()) tensors.push_back(tensor);
  for (at::Tensor& tensor : batch.more_inputs)
    if (tensor.defined()) tensors.push_back(&tensor);
  return tensors;
}

MicroBatch slice_of(MicroBatch batch, std::int64_t first, std::int64_t end,
                    std::shared_ptr<KeyValueCache> key_value_cache) {
  for (at::Tensor* tensor : {&batch.tokens, &batch.targets})
    if (tensor->defined()) *tensor = tensor->narrow(1, first, end - first);
  // Not cut at the front: a query attends to earlier tokens of its document, which may lie in earlier slices.
  if (batch.documents.defined()) batch.documents = batch.documents.narrow(1, 0, end);
  // Dropout draws the mask of the whole sample and uses the part of the slice, so that slices change no bit.
  batch.first_token = batch.dropout.first_token = first;
  batch.dropout.sequence = key_value_cache->sequence();
  batch.key_value_cache = std::move(key_value_cache);
  return batch;
}

Stage::Stage(std::vector<Parameter> parameters, const TiedLeaves& tied, std::optional<at::ScalarType> compute)
    : ParameterGroup(std::move(parameters)),
      compute_type_(compute.value_or(this->parameters().front().value.scalar_type())) {
  for (const Parameter& parameter : this->parameters()) leaves_.push_back(parameter.value);
  for (const at::Tensor& leaf : {tied.embedding, tied.head})
    if (leaf.defined()) leaves_.push_back(leaf);
}

at::Tensor Stage::for_compute(const at::Tensor& leaf) {
  if (leaf.scalar_type() == compute_type_) return leaf;
  for (const auto& [copied, copy] : copies_)
    if (copied.is_same(leaf)) return copy;
  at::Tensor copy = leaf.detach().to(compute_type_).requires_grad_();
  at::impl::GetVariableHooks()->set_grad_dtype(copy, leaf.scalar_type());  // autograd then adds in this type
  // Both share one gradient: backward of the copy accumulates in the type of the master weight.
  copy.mutable_grad() = leaf.grad();
  copies_.emplace_back(leaf, copy);
  leaves_.push_back(copy);
  return copy;
}

at::Tensor Stage::packed_for_compute(const std::vector<at::Tensor>& leaves) {
  const at::Tensor& first = leaves.front();
  if (first.is_cpu() || first.scalar_type() == compute_type_) return {};
  // Gradients that lie one after the other are the gradient of the packed matrix; otherwise a copy of them would be
  // needed in every backward.
  const std::int64_t columns = first.size(1);
  std::int64_t rows = 0;
  for (const at::Tensor& leaf : leaves) {
    // Where the gradient of this leaf must begin if the gradients of the leaves before it are joined to it.
    const auto offset = static_cast<std::size_t>(rows * columns) * first.element_size();
    if (leaf.grad().data_ptr() != static_cast<std::byte*>(first.grad().data_ptr()) + offset) return {};
    rows += leaf.size(0);
  }
  const at::Tensor packed = at::empty({rows, columns}, first.options().dtype(compute_type_));
  rows = 0;
  for (const at::Tensor& leaf : leaves) {
    // update_copies() writes each matrix to its rows of the packed one.
    copies_.emplace_back(leaf, packed.narrow(0, rows, leaf.size(0)).copy_(leaf.detach()));
    rows += leaf.size(0);
  }
  packed.requires_grad_();
  at::impl::GetVariableHooks()->set_grad_dtype(packed, first.scalar_type());
  // The gradient of the packed matrix is the range of gradients() that covers the leaves, as a matrix.
  const auto* const begin = static_cast<const std::byte*>(gradients().data_ptr());
  const auto offset = (static_cast<const std::byte*>(first.grad().data_ptr()) - begin) / gradients().itemsize();
  packed.mutable_grad() =
      gradients().narrow(0, static_cast<std::int64_t>(offset), rows * columns).view({rows, columns});
  return packed;
}

void Stage::update_copies() {
  const at::NoGradGuard no_graph;
  for (auto& [leaf, copy] : copies_) copy.copy_(leaf);
}

}  // namespace chimera
