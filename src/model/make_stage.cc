#include "core/error.h"
#include "model/bert_stage.h"
#include "model/first_values.h"
#include "model/gpt2_stage.h"
#include "model/initial_values.h"
#include "model/llama_stage.h"
#include "model/stage.h"

namespace chimera {
namespace {

/// The leaves of the tied matrix that the stage uses.
TiedLeaves used_leaves(const ModelConfig& config, const StageLayers& layers, const TiedLeaves& tied) {
  TiedLeaves used;
  if (!config.tied) return used;
  if (layers.embedding) used.embedding = tied.embedding;
  if (layers.head) used.head = tied.head;
  if (used.embedding.defined() == layers.embedding && used.head.defined() == layers.head) return used;
  throw ConfigError("model '" + config.name + "' is tied: a stage with embedding or head needs a TiedWeight with them");
}

std::vector<Parameter> valued(const std::vector<ParameterSpec>& specs, const at::TensorOptions& options,
                              const FirstValue& value) {
  std::vector<Parameter> parameters;
  for (const ParameterSpec& spec : specs) parameters.push_back({spec.name, value(spec, options)});
  return parameters;
}

}  // namespace

FirstValue initial_values_of(std::uint64_t seed) {
  return [seed](const ParameterSpec& parameter, const at::TensorOptions& options) {
    return initial_values({parameter}, options, seed).front().value;
  };
}

std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers, at::ScalarType dtype,
                                  std::uint64_t seed, const TiedLeaves& tied, at::Device device) {
  return make_stage(config, layers, dtype, initial_values_of(seed), tied, device);
}

std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers, at::ScalarType dtype,
                                  const FirstValue& value, const TiedLeaves& tied, at::Device device) {
  const TiedLeaves used = used_leaves(config, layers, tied);
  const auto options = at::TensorOptions(device).dtype(weight_type(dtype));
  auto parameters = valued(own_parameters(config, layers), options, value);
  switch (config.family) {
    case Family::Gpt2: return std::make_unique<Gpt2Stage>(config, layers, std::move(parameters), used, dtype);
    case Family::Bert: return std::make_unique<BertStage>(config, layers, std::move(parameters), used, dtype);
    case Family::Llama: return std::make_unique<LlamaStage>(config, layers, std::move(parameters), used, dtype);
  }
  return nullptr;
}

}  // namespace chimera
