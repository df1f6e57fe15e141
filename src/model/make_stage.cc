#include "core/error.h"
#include "model/bert_stage.h"
#include "model/gpt2_stage.h"
#include "model/initial_values.h"
#include "model/stage.h"

namespace chimera {

std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers, at::ScalarType dtype,
                                  std::uint64_t seed) {
  if (config.tied && !(layers.embedding && layers.head)) {
    throw ConfigError("model '" + config.name + "' is tied, but tied pipelines do not exist yet; use --tied false");
  }
  auto parameters = initial_values(stage_parameters(config, layers), dtype, seed);
  if (config.family == Family::Gpt2) return std::make_unique<Gpt2Stage>(config, layers, std::move(parameters));
  return std::make_unique<BertStage>(config, layers, std::move(parameters));
}

}  // namespace chimera
