#pragma once

// Reads a Hugging Face folder: the model (config.json), its weights, and the settings of generated texts
// (generation_config.json). Also makes the files that an export writes beside the weights (configs and tokenizer).
// engine/stored_values.h reads the weights into stages; train/export writes folders.

#include "hugging_face/staged_folder.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "safetensors/safetensors_file.h"
#include "safetensors/weight_files.h"

namespace chimera {

inline constexpr const char* kGenerationConfigName = "generation_config.json";

/// Returns the model of the Hugging Face folder `name` or, if `name` is not a folder, the preset or TOML file of this
/// name (find_model()). Throws ConfigError if the folder or file is invalid, or the name is unknown.
[[nodiscard]] ModelConfig find_model_or_folder(const std::string& name);

/// A model in a Hugging Face folder: config.json and complete weights in safetensors files. Reads only the headers of
/// the files into memory. Any number of threads may read.
class ModelFolder {
 public:
  /// Throws ConfigError if config.json or a weight file is invalid or unsupported; if a tensor is missing, unknown, not
  /// floating-point or of the wrong shape; or if a tied model has a head matrix that differs from the embedding.
  /// Ignores tensors of older versions that are not parameters (is_ignored_tensor()).
  explicit ModelFolder(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const ModelConfig& model() const { return model_; }
  /// Returns the text of config.json.
  [[nodiscard]] const std::string& config_json() const { return config_json_; }
  /// Returns the text of generation_config.json, empty if the folder has none.
  [[nodiscard]] const std::string& generation_json() const { return generation_json_; }
  /// Returns where the values of a parameter of the model are stored. The file in the result belongs to this object.
  [[nodiscard]] WeightFiles::Found find(const ParameterSpec& parameter) const;

 private:
  void require_whole() const;
  void require_equal(const std::string& tensor, const ParameterSpec& parameter) const;

  std::string path_;
  std::string config_json_;
  std::string generation_json_;
  ModelConfig model_;
  WeightFiles weights_;
};

/// Returns all parameters of a model, in the order embedding, blocks, head.
[[nodiscard]] std::vector<ParameterSpec> all_parameters(const ModelConfig& model);

/// For a user who gives a folder and also describes the model: throws ConfigError if `model` (preset or TOML file;
/// empty: none) or `overrides`, such as --layers, differ from the folder's model. The names of the models may differ.
void require_no_contradiction(const ModelFolder& folder, const std::string& model, const ModelOverrides& overrides);

/// Returns name, type and shape of each tensor in an exported folder, in the order of all_parameters().
[[nodiscard]] std::vector<TensorEntry> exported_tensors(const ModelConfig& model, ElementType type);

/// Adds config.json and generation_config.json to `folder`: copies of the files of `source` or, if `source` is null,
/// new ones for `model`. generation_config.json is left out if `source` has none, or if a new model is not causal.
/// `type`, if set, replaces the element type; new files without it have float32.
void add_description(const StagedFolder& folder, const ModelConfig& model, const ModelFolder* source,
                     std::optional<ElementType> type);

/// Adds the tokenizer at `path` to `folder`: writes `texts`, the texts of its files by name (tokenizer_texts()). If
/// `path` is "bytes" (each byte is a token), generates the files instead. Generates tokenizer_config.json if it is
/// missing.
void add_tokenizer(const StagedFolder& folder, const ModelConfig& model, const std::string& path,
                   const std::map<std::string, std::string>& texts);

/// Throws ConfigError if the model's vocabulary is too small for the byte tokenizer: 256 bytes and, for BERT, the
/// special tokens.
void require_room_for_bytes(const ModelConfig& model);

/// Rules that change the scores of the next token before it is chosen, as the logits processors of transformers. All
/// tokens are ids; ids outside the vocabulary have no effect.
struct ScoreRules {
  double repetition_penalty = 1;          ///< Divides positive and multiplies negative scores of earlier tokens
  std::int64_t no_repeat_ngram_size = 0;  ///< Forbids a second occurrence of this many consecutive tokens; 0: off
  std::vector<std::vector<std::int64_t>> bad_words_ids = {};  ///< Forbidden sequences
  std::int64_t min_length = 0;                                ///< Tokens with the prompt before an end token may follow
  std::int64_t min_new_tokens = 0;                            ///< New tokens before an end token may follow
  std::vector<std::int64_t> suppress_tokens = {};             ///< Forbidden everywhere
  std::vector<std::int64_t> begin_suppress_tokens = {};       ///< Forbidden as the first new token
};

/// Settings of a folder for generated texts.
struct GenerationConfig {
  std::vector<std::int64_t> end_tokens;  ///< Tokens that end a text (eos_token_id)
  ScoreRules rules;
  std::vector<std::string> ignored;  ///< Fields of the file that would change a text, but are not supported
};

/// Reads the settings of a folder. Throws ConfigError for invalid JSON, tokens or values.
[[nodiscard]] GenerationConfig read_generation_config(const ModelFolder& folder);

}  // namespace chimera
