#pragma once

// Hugging Face folders: the import of a model (config.json and weights), and the files that an export writes
// beside the weights (configs and tokenizer). engine/stored_values.h reads the weights into stages; train/export writes
// folders.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hugging_face/staged_folder.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "safetensors/tensor_table.h"
#include "safetensors/weight_files.h"

namespace chimera {

/// Returns a ModelFolder's model, or find_model(name) if `name` is not a folder. Throws ConfigError as both do.
[[nodiscard]] ModelConfig find_model_or_folder(const std::string& name);

/// Hugging Face folder with complete safetensors weights. Only headers are in memory. Any number of threads may read.
class ModelFolder {
 public:
  /// Throws ConfigError as model_from_config_json() and WeightFiles do, for a tensor that is missing, unknown, not
  /// floating-point or of the wrong shape, and for a tied model with a different head matrix. Ignores buffers of older
  /// versions.
  explicit ModelFolder(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const ModelConfig& model() const { return model_; }
  [[nodiscard]] const std::string& config_json() const { return config_json_; }
  [[nodiscard]] WeightFiles::Found find(const ParameterSpec& parameter) const;

 private:
  void require_whole() const;
  void require_equal(const std::string& tensor, const ParameterSpec& parameter) const;

  std::string path_;
  std::string config_json_;
  ModelConfig model_;
  WeightFiles weights_;
};

/// In the order embedding, blocks, head.
[[nodiscard]] std::vector<ParameterSpec> all_parameters(const ModelConfig& model);

/// Throws ConfigError if `model` (preset or TOML file; may be empty) with `overrides` differs from the folder's model.
/// Ignores names.
void require_no_contradiction(const ModelFolder& folder, const std::string& model, const ModelOverrides& overrides);

inline constexpr const char* kGenerationConfigName = "generation_config.json";

/// Returns eos_token_id (number, list or null) of generation_config.json or, without this file, of config.json. Throws
/// ConfigError for invalid JSON or tokens.
[[nodiscard]] std::vector<std::int64_t> end_tokens(const ModelFolder& folder);

/// Returns name, type and shape, in the order of all_parameters().
[[nodiscard]] std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type);

/// Adds config.json and generation_config.json, from `source` if given; `type` replaces the element type.
void add_description(const StagedFolder& folder, const ModelConfig& model, const ModelFolder* source,
                     std::optional<ElementType> type);

/// Adds the tokenizer at `path` (as in open_tokenizer()): all files that transformers uses; for "bytes", generated
/// files. Generates a missing tokenizer_config.json. Does nothing for an empty path.
void add_tokenizer(const StagedFolder& folder, const ModelConfig& model, const std::string& path);

/// Throws ConfigError if the vocabulary is too small for bytes and BERT's special tokens.
void require_room_for_bytes(const ModelConfig& model);

}  // namespace chimera
