#pragma once
// Small models and batches for the tests of stages.

#include <cstdint>
#include <memory>
#include <vector>

#include "model/stage.h"
#include "model_config/config.h"

namespace chimera {

/// 5 layers, 8 wide, vocabulary 11, no two sizes alike where that is possible; Llama with all that the family knows.
[[nodiscard]] ModelConfig small_model(Family family);

/// 2 sequences of 6 tokens with some ignored targets; for BERT also two token types and padding. The loss scales are
/// those of a step that is this micro-batch alone.
[[nodiscard]] MicroBatch small_batch(Family family);

/// make_stage in float64 with every parameter, biases too, replaced by values that depend on its name and are large
/// enough to matter.
[[nodiscard]] std::unique_ptr<Stage> rough_stage(const ModelConfig& config, const StageLayers& layers);

/// All of the model on one stage.
[[nodiscard]] StageLayers whole(const ModelConfig& config);

/// Runs the stages one after the other, forward and backward, as a pipeline does: hidden states are cut off from the
/// graph between stages. Adds into each stage's gradients and returns the loss.
double run_stages(const std::vector<std::unique_ptr<Stage>>& stages, const MicroBatch& batch);

}  // namespace chimera
