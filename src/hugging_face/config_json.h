#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "safetensors/element_type.h"

// config.json of a Hugging Face folder: what a model is, as `transformers` writes it. Six classes are known:
// GPT2LMHeadModel, BertForPreTraining, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM.

namespace chimera {

inline constexpr const char* kConfigName = "config.json";
/// No config of a folder is longer: 1 MiB.
inline constexpr std::size_t kMostConfigBytes = std::size_t{1} << 20;

/// The model that a config.json describes, older spellings included; fields that it leaves out are those of its class
/// in transformers 5. `source` is what messages call the text; the model is called `name`. Throws ConfigError for what
/// is no JSON, for another class, and for each thing that the config asks for and Chimera does not have, by its name;
/// docs/folders.md lists them. Dropout rates are not read: --dropout says.
[[nodiscard]] ModelConfig model_from_config_json(const std::string& text, const std::string& source,
                                                 const std::string& name);

/// The words of config.json for the types of tensors that Chimera writes: float32, float64, bfloat16, float16.
[[nodiscard]] std::vector<std::string> element_words();
/// The type of that word; `what` is the flag that it stands in. Throws ConfigError for an unknown one.
[[nodiscard]] ElementType element_type_of_word(const std::string& what, const std::string& word);

/// A config.json for the model, whose tensors are of that type; model_from_config_json() makes the same model of it.
[[nodiscard]] std::string to_config_json(const ModelConfig& model, ElementType type);

/// A config.json that model_from_config_json() has read, with another type of tensors and nothing else changed.
[[nodiscard]] std::string with_element_type(const std::string& config_json, ElementType type);

}  // namespace chimera
