#pragma once

// config.json of a Hugging Face folder <-> ModelConfig, for the classes GPT2LMHeadModel, BertForPreTraining,
// LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM. A feature that Chimera does not have is
// refused, because the model would compute something else.

#include <cstddef>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "safetensors/element_type.h"

namespace chimera {

inline constexpr const char* kConfigName = "config.json";
inline constexpr std::size_t kMostConfigBytes = std::size_t{1} << 20;

/// Reads older spellings too. Missing fields have the defaults of their class in transformers 5. `source` names the
/// text in messages, `name` the model. Throws ConfigError for invalid JSON, another class, or an unsupported feature
/// (docs/folders.md). Ignores dropout rates.
[[nodiscard]] ModelConfig model_from_config_json(const std::string& text, const std::string& source,
                                                 const std::string& name);

/// Returns float32, float64, bfloat16, float16.
[[nodiscard]] std::vector<std::string> element_type_names();
/// `what` is the flag, for messages. Throws ConfigError for an unknown name.
[[nodiscard]] ElementType element_type_of_word(const std::string& what, const std::string& word);

/// Returns a config.json that model_from_config_json() reads as the same model. Throws ConfigError if no class has all
/// its features.
[[nodiscard]] std::string to_config_json(const ModelConfig& model, ElementType type);

[[nodiscard]] std::string with_element_type(const std::string& config_json, ElementType type);

}  // namespace chimera
