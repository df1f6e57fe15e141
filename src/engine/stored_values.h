#pragma once

// Initial values of parameters from the files of a model: a Hugging Face folder (stored_values) or the tensors of a
// checkpoint (values_at). They are read when a stage is made, so that a rank reads only its own stages. LoneStage makes
// layers with such values outside of a training, for evaluation, generation and exports.

#include <cstdint>
#include <functional>
#include <memory>

#include "hugging_face/model_folder.h"
#include "model/make_stage.h"

namespace chimera {

/// Fills `value` (contiguous) with a tensor of equal size; converts other types block by block. Throws ConfigError if
/// the file cannot be read any more.
void read_values(const WeightFiles::Found& found, const at::Tensor& value);

using FindValues = std::function<WeightFiles::Found(const ParameterSpec& parameter)>;
[[nodiscard]] InitialValue values_at(FindValues find);

/// Reads each parameter on demand, so that a rank reads only its stages. The result throws ConfigError if the folder's
/// files cannot be read any more.
[[nodiscard]] InitialValue stored_values(std::shared_ptr<const ModelFolder> folder);

[[nodiscard]] inline InitialValue first_values(const std::shared_ptr<const ModelFolder>& folder, std::int64_t seed) {
  return folder ? stored_values(folder) : initial_values_of(static_cast<std::uint64_t>(seed));
}

/// Layers of a model on one worker, outside a training engine: for evaluation, generation and the export of a job.
struct LoneStage {
  std::unique_ptr<TiedWeight> tied;  ///< null if the model is not tied, or the layers do not use the matrix
  std::unique_ptr<Stage> stage;

  LoneStage(const ModelConfig& model, const StageLayers& layers, at::ScalarType dtype, const InitialValue& value);
};

}  // namespace chimera
