#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hugging_face/staged_folder.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "safetensors/tensor_table.h"
#include "safetensors/weight_files.h"

// Models that are named by a preset, a file or a folder.

// A Hugging Face folder as a model with its weights: config.json and safetensors.

// Whether flags contradict a folder.

// What a Hugging Face folder says about continuing texts.

// What a folder has beside its weights.

namespace chimera {

/// The model of a Hugging Face folder, whose weights are looked at too, where `name` is a folder; else find_model()'s.
/// Throws ConfigError as ModelFolder and find_model().
[[nodiscard]] ModelConfig find_model_or_folder(const std::string& name);

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

/// Throws ConfigError, naming the first difference, where `model` (a preset or a TOML file; empty: none was given) with
/// `overrides` is another model than the folder's. Names do not count.
void require_no_contradiction(const ModelFolder& folder, const std::string& model, const ModelOverrides& overrides);

inline constexpr const char* kGenerationConfigName = "generation_config.json";

/// The tokens that end a text, eos_token_id: of generation_config.json or, in a folder without, of config.json, as
/// transformers has it; a number or a list of them, or nothing. Throws ConfigError, naming the file, for what is no
/// JSON or no token.
[[nodiscard]] std::vector<std::int64_t> end_tokens(const ModelFolder& folder);

/// Name, type and shape of all tensors that a folder of the model has, in the order embedding, blocks, head.
[[nodiscard]] std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type);

/// Adds config.json and generation_config.json. Where `source` is given they are its own, but for the type of tensors
/// where that has become `type`.
void add_description(const StagedFolder& folder, const ModelConfig& model, const ModelFolder* source,
                     std::optional<ElementType> type);

/// Adds the files of the tokenizer that open_tokenizer() finds at `path`: of a folder all that transformers knows, of a
/// file those that belong to it; for "bytes" they are made. A tokenizer_config.json that is missing is made too, so
/// that AutoTokenizer opens what Chimera opens. Adds nothing for an empty path, and of a folder what is there.
void add_tokenizer(const StagedFolder& folder, const ModelConfig& model, const std::string& path);

/// Throws ConfigError where the model's vocabulary is too small for bytes and, of BERT, its special tokens.
void require_room_for_bytes(const ModelConfig& model);

}  // namespace chimera
