#include "model/tied_weight.h"

#include <ATen/ATen.h>

#include <utility>

namespace chimera {
namespace {

at::Tensor leaf_of(const at::Tensor& value, const at::Tensor& gradient) {
  at::Tensor leaf = value.detach().requires_grad_();
  leaf.mutable_grad() = gradient.view(value.sizes());
  return leaf;
}

}  // namespace

TiedWeight::TiedWeight(Parameter weight, const TiedUses& uses)
    : ParameterGroup({std::move(weight)}, uses.embedding && uses.head ? 2 : 1) {
  const at::Tensor& value = parameters().front().value;
  if (uses.embedding) leaves_.embedding = leaf_of(value, accumulators().front());
  if (uses.head) leaves_.head = leaf_of(value, accumulators().back());
}

}  // namespace chimera
