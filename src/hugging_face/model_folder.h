#pragma once
// A Hugging Face folder as a model with its weights: config.json and safetensors.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/parameters.h"
#include "safetensors/weight_files.h"

namespace chimera {

/// A folder whose weights are there, each once and of the right shape. Only headers are in memory. Any number of
/// threads may read.
class ModelFolder {
 public:
  /// Throws ConfigError, one line, for what model_from_config_json() and WeightFiles refuse, for a tensor that is
  /// missing, unknown, of another shape than config.json gives it or no floating-point numbers, and for a tied model
  /// whose file has another matrix for its head. What held no weights in older versions is passed over.
  explicit ModelFolder(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Named as the folder.
  [[nodiscard]] const ModelConfig& model() const { return model_; }
  /// The text of its config.json.
  [[nodiscard]] const std::string& config_json() const { return config_json_; }
  /// Where a parameter of the model lies.
  [[nodiscard]] WeightFiles::Found find(const ParameterSpec& parameter) const;

 private:
  void require_whole() const;
  void require_equal(const std::string& tensor, const ParameterSpec& parameter) const;

  std::string path_;
  std::string config_json_;
  ModelConfig model_;
  WeightFiles weights_;
};

/// All parameters of a model, in the order embedding, blocks, head.
[[nodiscard]] std::vector<ParameterSpec> all_parameters(const ModelConfig& model);

}  // namespace chimera
