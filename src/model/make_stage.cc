#include "core/error.h"
#include "model/bert_stage.h"
#include "model/gpt2_stage.h"
#include "model/initial_values.h"
#include "model/stage.h"

namespace chimera {

std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers, at::ScalarType dtype,
                                  std::uint64_t seed, at::Device device) {
  if (config.tied && !(layers.embedding && layers.head)) {
    throw ConfigError("model '" + config.name + "' is tied, but tied pipelines do not exist yet; use --tied false");
  }
  const at::ScalarType kept = at::promote_types(dtype, at::kFloat);
  auto parameters = initial_values(stage_parameters(config, layers), at::TensorOptions(device).dtype(kept), seed);
  if (config.family == Family::Gpt2) return std::make_unique<Gpt2Stage>(config, layers, std::move(parameters), dtype);
  return std::make_unique<BertStage>(config, layers, std::move(parameters), dtype);
}

}  // namespace chimera
