#pragma once

// Converts the config.json of a Hugging Face folder to a ModelConfig and back, for the classes GPT2LMHeadModel,
// BertForPreTraining, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM. model_folder.h uses
// it to read and export models. A file that sets a feature which Chimera does not implement is rejected, because the
// model would compute something else.

#include <cstddef>

#include "model_config/config.h"
#include "safetensors/element_type.h"

namespace chimera {

inline constexpr const char* kConfigName = "config.json";
inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;  ///< a larger config.json is rejected

/// Returns the model that the text of a config.json describes. Accepts the field names of older versions too. Missing
/// fields have the defaults of their class in transformers 5. Dropout rates are ignored. `source` is the file, for
/// messages; `name` becomes the name of the model. Throws ConfigError for invalid JSON, another class, or an
/// unsupported feature (docs/folders.md).
[[nodiscard]] ModelConfig model_from_config_json(const std::string& text, const std::string& source,
                                                 const std::string& name);

/// Returns the names of element types that users can choose: float32, float64, bfloat16, float16.
[[nodiscard]] std::vector<std::string> element_type_names();
/// Returns the type with the name `word`. `what` is the flag, for messages. Throws ConfigError for an unknown name.
[[nodiscard]] ElementType element_type_of_word(const std::string& what, const std::string& word);

/// Returns the text of a config.json that model_from_config_json() reads as the same model. `type` becomes its field
/// `dtype`. Throws ConfigError if no class has all features of the model.
[[nodiscard]] std::string to_config_json(const ModelConfig& model, ElementType type);

/// Returns the text of a config.json with the field `dtype` set to `type`.
[[nodiscard]] std::string with_element_type(const std::string& config_json, ElementType type);

}  // namespace chimera
