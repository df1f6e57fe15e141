#include "model/stage.h"

#include <ATen/ATen.h>

namespace chimera {

Stage::Stage(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  constexpr std::int64_t kAlignment = 64;  // bytes: a product's last bits may depend on where it is written
  const auto slot_of = [&](const at::Tensor& value) {
    const std::int64_t elements = kAlignment / static_cast<std::int64_t>(value.element_size());
    return (value.numel() + elements - 1) / elements * elements;
  };
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += slot_of(parameter.value);
  gradients_ = at::zeros({count}, parameters_.front().value.options());
  std::int64_t offset = 0;
  for (Parameter& parameter : parameters_) {
    at::Tensor& value = parameter.value;
    value.requires_grad_();
    value.mutable_grad() = gradients_.narrow(0, offset, value.numel()).view(value.sizes());
    offset += slot_of(value);
  }
}

void Stage::zero_gradients() { gradients_.zero_(); }

}  // namespace chimera
