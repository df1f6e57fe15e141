#pragma once

// Initial values of parameters from the files of a model: a Hugging Face folder (values_from_folder()) or the tensors
// of a checkpoint (values_from_files()). Both return an InitialValue, a function that make_stage() (model/make_stage.h)
// calls for each parameter of a stage. So a rank reads only the parameters of its own stages. With tensor parallelism,
// where several ranks share each layer, it reads only its part of each matrix. StandaloneStage makes layers with such
// values outside of a training run, for evaluation, generation and exports.

#include "hugging_face/model_folder.h"
#include "model/make_stage.h"

namespace chimera {

/// Reads a rank's part of the parameter `name` into `value`, and no other bytes of the file. `found` says where the
/// whole tensor is in the file, and `place` which part of it the rank has (model_config/tensor_cut.h). `value` is
/// contiguous and has as many elements as the part. Converts another element type block by block. Throws ConfigError if
/// the file cannot be read any more.
void read_values(const WeightFiles::Found& found, const std::string& name, const TensorPlace& place,
                 const at::Tensor& value);

/// Finds the tensor of a parameter in files.
using FindValues = std::function<WeightFiles::Found(const ParameterSpec& parameter)>;
/// Returns a function that reads each parameter from the place that `find` returns.
[[nodiscard]] InitialValue values_from_files(FindValues find);

/// Returns a function that reads each parameter from the folder. It throws ConfigError if the folder's files cannot be
/// read any more.
[[nodiscard]] InitialValue values_from_folder(std::shared_ptr<const ModelFolder> folder);

/// Returns values_from_folder(), or random values from `seed` if `folder` is null.
[[nodiscard]] inline InitialValue folder_or_random_values(const std::shared_ptr<const ModelFolder>& folder,
                                                          std::int64_t seed) {
  return folder ? values_from_folder(folder) : initial_values_of(static_cast<std::uint64_t>(seed));
}

/// Layers of a model on one worker, outside a training engine: for evaluation, generation and the export of a job.
struct StandaloneStage {
  std::unique_ptr<TiedWeight> tied;  ///< null if the model is not tied, or the layers do not use the matrix
  std::unique_ptr<Stage> stage;

  StandaloneStage(const ModelConfig& model, const StageLayers& layers, at::ScalarType dtype, const InitialValue& value);
};

}  // namespace chimera
