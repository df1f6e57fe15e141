#include "model/tied_weight.h"

#include <ATen/ATen.h>

#include <utility>

#include "model/initial_values.h"
#include "model_config/parameters.h"

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

std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses, at::ScalarType dtype,
                                             std::uint64_t seed, at::Device device) {
  return make_tied_weight(config, uses, dtype, initial_values_of(seed), device);
}

std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses, at::ScalarType dtype,
                                             const InitialValue& value, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(weight_type(dtype));
  const ParameterSpec spec = tied_parameter(config);
  return std::make_unique<TiedWeight>(Parameter{spec.name, value(spec, options)}, uses);
}

}  // namespace chimera
