#include "model/stage.h"

#include <ATen/ATen.h>

namespace chimera {

Stage::Stage(std::vector<Parameter> parameters, std::optional<at::ScalarType> compute)
    : parameters_(std::move(parameters)), compute_type_(compute.value_or(parameters_.front().value.scalar_type())) {
  constexpr std::int64_t kAlignment = 64;  // bytes: a product's last bits may depend on where it is written
  std::int64_t count = 0;
  std::vector<std::int64_t> offsets;
  for (const Parameter& parameter : parameters_) {
    const std::int64_t elements = kAlignment / static_cast<std::int64_t>(parameter.value.element_size());
    offsets.push_back((count + elements - 1) / elements * elements);
    count = offsets.back() + parameter.value.numel();
  }
  gradients_ = at::zeros({count}, parameters_.front().value.options());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& value = parameters_[i].value;
    value.requires_grad_();
    value.mutable_grad() = gradients_.narrow(0, offsets[i], value.numel()).view(value.sizes());
    leaves_.push_back(value);
  }
}

at::Tensor Stage::for_compute(const at::Tensor& value) {
  if (value.scalar_type() == compute_type_) return value;
  for (std::size_t i = 0; i < copied_.size(); ++i) {
    if (copied_[i].is_same(value)) return copies_[i];
  }
  at::Tensor copy = value.detach().to(compute_type_).requires_grad_();
  at::impl::GetVariableHooks()->set_grad_dtype(copy, value.scalar_type());  // so that autograd adds in that type
  copy.mutable_grad() = value.grad();
  copied_.push_back(value);
  copies_.push_back(copy);
  leaves_.push_back(copy);
  return copy;
}

void Stage::update_copies() {
  const at::NoGradGuard no_graph;
  for (std::size_t i = 0; i < copies_.size(); ++i) copies_[i].copy_(copied_[i]);
}

void Stage::zero_gradients() { gradients_.zero_(); }

}  // namespace chimera
