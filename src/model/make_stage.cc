#include "core/error.h"
#include "model/bert_stage.h"
#include "model/gpt2_stage.h"
#include "model/initial_values.h"
#include "model/stage.h"

namespace chimera {
namespace {

/// Those that the stage uses.
TiedLeaves used_leaves(const ModelConfig& config, const StageLayers& layers, const TiedLeaves& tied) {
  TiedLeaves used;
  if (!config.tied) return used;
  if (layers.embedding) used.embedding = tied.embedding;
  if (layers.head) used.head = tied.head;
  if (used.embedding.defined() == layers.embedding && used.head.defined() == layers.head) return used;
  throw ConfigError("model '" + config.name + "' is tied: a stage with embedding or head needs a TiedWeight with them");
}

}  // namespace

std::unique_ptr<Stage> make_stage(const ModelConfig& config, const StageLayers& layers, at::ScalarType dtype,
                                  std::uint64_t seed, const TiedLeaves& tied) {
  const TiedLeaves used = used_leaves(config, layers, tied);
  auto parameters = initial_values(own_parameters(config, layers), dtype, seed);
  if (config.family == Family::Gpt2) return std::make_unique<Gpt2Stage>(config, layers, std::move(parameters), used);
  return std::make_unique<BertStage>(config, layers, std::move(parameters), used);
}

}  // namespace chimera
