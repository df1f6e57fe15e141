#include "model/initial_values.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/random.h"

namespace chimera {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // minimum elements per thread

at::Tensor normal(const ParameterSpec& spec, const at::TensorOptions& options, std::uint64_t seed) {
  const CounterRandom random(seed, spec.name);
  const at::Tensor values = at::empty(spec.shape, at::kDouble);
  double* const data = values.mutable_data_ptr<double>();
  at::parallel_for(0, values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      data[i] = random.normal(static_cast<std::uint64_t>(i)) * spec.initial.standard_deviation;
    }
  });
  return values.to(options);
}

at::Tensor initial_value(const ParameterSpec& spec, const at::TensorOptions& options, std::uint64_t seed) {
  switch (spec.initial.kind) {
    case Initial::Kind::Zeros: return at::zeros(spec.shape, options);
    case Initial::Kind::Ones: return at::ones(spec.shape, options);
    case Initial::Kind::Normal: break;
  }
  return normal(spec, options, seed);
}

}  // namespace

std::vector<Parameter> initial_values(const std::vector<ParameterSpec>& specs, const at::TensorOptions& options,
                                      std::uint64_t seed) {
  std::vector<Parameter> parameters;
  for (const ParameterSpec& spec : specs) parameters.push_back({spec.name, initial_value(spec, options, seed)});
  return parameters;
}

}  // namespace chimera
