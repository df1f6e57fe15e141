#pragma once

#include <memory>
#include <vector>

#include "model/make_stage.h"
#include "model_config/config.h"

namespace chimera {

/// 5 layers, width 8, vocabulary 11; sizes differ where possible. The Llama uses all features of its family.
[[nodiscard]] ModelConfig small_model(Family family);

/// 2 sequences of 6 tokens with some ignored targets; for BERT also two token types and padding. The loss scales fit a
/// step with only this micro-batch.
[[nodiscard]] MicroBatch small_batch(Family family);

/// A float64 stage whose parameters, even biases, have values that depend on their names and are large enough to
/// matter.
[[nodiscard]] std::unique_ptr<Stage> rough_stage(const ModelConfig& config, const StageLayers& layers);

/// The whole model on one stage.
[[nodiscard]] StageLayers whole(const ModelConfig& config);

/// Runs forward and backward of the stages in order. As in a pipeline, hidden states are detached between stages. Adds
/// into each stage's gradients and returns the loss.
double run_stages(const std::vector<std::unique_ptr<Stage>>& stages, const MicroBatch& batch);

}  // namespace chimera
