#include "model/stage.h"

#include <ATen/ATen.h>

namespace chimera {

Stage::Stage(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
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
  }
}

void Stage::zero_gradients() { gradients_.zero_(); }

}  // namespace chimera
