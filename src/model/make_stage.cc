#include "model/make_stage.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "model/transformer_stage.h"

namespace chimera {
namespace {

at::Tensor normal_values(const ParameterSpec& spec, const at::TensorOptions& options, std::uint64_t seed) {
  constexpr std::int64_t kGrain = 1 << 14;  // minimum elements per thread
  const CounterRandom random(seed, spec.name);
  // Each element is drawn by its own index, so that threads may split the work and every partition gets the same bits.
  const at::Tensor values = at::empty(spec.shape, at::kDouble);
  double* const data = values.mutable_data_ptr<double>();
  at::parallel_for(0, values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      data[i] = random.normal(static_cast<std::uint64_t>(i)) * spec.initial.standard_deviation;
  });
  // Drawn in float64 and rounded at the end, so that runs in float32 and float64 begin with the same values but for
  // rounding.
  return values.to(options);
}

TiedLeaves used_leaves(const ModelConfig& config, const StageLayers& layers, const TiedLeaves& tied) {
  TiedLeaves used;
  if (!config.tied) return used;
  if (layers.embedding) used.embedding = tied.embedding;
  if (layers.head) used.head = tied.head;
  // A stage with the embedding or the head of a tied model must get the leaf for it.
  if (used.embedding.defined() == layers.embedding && used.head.defined() == layers.head) return used;
  throw ConfigError("model '" + config.name + "' is tied: a stage with embedding or head needs a TiedWeight with them");
}

/// Makes the parameter, or this rank's part of it.
Parameter make_parameter(const ParameterSpec& spec, const at::TensorOptions& options, const InitialValue& value,
                         TensorGroup* tensor) {
  // Parameters that are whole on every rank (norms) are made like on one rank.
  const bool is_part = tensor != nullptr && is_cut(spec, tensor->place().ranks);
  Parameter parameter{.name = spec.name, .value = value(spec, options, is_part ? tensor->place() : TensorPlace{})};
  if (is_part) parameter.whole_elements = spec.count();
  return parameter;
}

}  // namespace

InitialValue initial_values_of(std::uint64_t seed) {
  return [seed](const ParameterSpec& spec, const at::TensorOptions& options, const TensorPlace& place) {
    switch (spec.initial.kind) {
      case Initial::Kind::Zeros: return at::zeros(held_shape(spec, place), options);
      case Initial::Kind::Ones: return at::ones(held_shape(spec, place), options);
      case Initial::Kind::Normal: break;
    }
    const at::Tensor whole = normal_values(spec, options, seed);  // random numbers do not depend on T
    return place.ranks == 1 ? whole : local_part(whole, *tensor_cut(spec.name), place);
  };
}

std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers, at::ScalarType dtype,
                                  const InitialValue& value, const TiedLeaves& tied, at::Device device,
                                  TensorGroup* tensor) {
  TransformerParts parts{.config = config,
                         .layers = layers,
                         .parameters = {},
                         .tied = used_leaves(config, layers, tied),
                         .compute = dtype,
                         .tensor = tensor};
  const auto options = at::TensorOptions(device).dtype(weight_type(dtype));
  // Without the tied matrix, which belongs to the worker, not to a stage (make_tied_weight()).
  for (const ParameterSpec& spec : own_parameters(config, layers))
    parts.parameters.push_back(make_parameter(spec, options, value, tensor));
  switch (config.family) {
    case Family::Gpt2: return make_gpt2_stage(std::move(parts));
    case Family::Bert: return make_bert_stage(std::move(parts));
    case Family::Llama: break;
  }
  return make_llama_stage(std::move(parts));
}

std::unique_ptr<TiedWeight> make_tied_weight(const ModelConfig& config, const TiedUses& uses, at::ScalarType dtype,
                                             const InitialValue& value, at::Device device, TensorGroup* tensor) {
  const auto options = at::TensorOptions(device).dtype(weight_type(dtype));
  return std::make_unique<TiedWeight>(make_parameter(tied_parameter(config), options, value, tensor), uses);
}

}  // namespace chimera
