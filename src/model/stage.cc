#include "model/stage.h"

#include <ATen/ATen.h>

namespace chimera {

Stage::Stage(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.value.numel();
  gradients_ = at::zeros({count}, parameters_.front().value.options());
  std::int64_t offset = 0;
  for (Parameter& parameter : parameters_) {
    at::Tensor& value = parameter.value;
    value.requires_grad_();
    value.mutable_grad() = gradients_.narrow(0, offset, value.numel()).view(value.sizes());
    offset += value.numel();
  }
}

void Stage::zero_gradients() { gradients_.zero_(); }

}  // namespace chimera
