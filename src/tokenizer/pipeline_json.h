#pragma once

// Readers for the parts of a tokenizer.json, one per step of the pipeline (pipeline_tokenizer.h), and for single
// fields. An unsupported feature is refused by name rather than ignored, because ids would differ. All throw
// ConfigError with the position.

#include <vector>

#include "core/json_value.h"
#include "tokenizer/pipeline_tokenizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

[[nodiscard]] Normalizer read_normalizer(const JsonValue& file);

struct PreTokenizerParts {
  std::vector<WordsStep> steps;
  bool byte_level = false;  ///< tokens have one letter per byte
};
[[nodiscard]] PreTokenizerParts read_pre_tokenizer(const JsonValue& file);

void read_post_processor(const JsonValue& file, PipelineParts& parts);

[[nodiscard]] Decoder read_decoder(const JsonValue& file);

/// Reads {"token": id, ...}. Tokens and ids must be distinct.
[[nodiscard]] TextMap<TokenId> read_vocabulary(const JsonValue& value);

/// Throws ConfigError unless the value is an object, of any fields.
void require_object(const JsonValue& value);
[[nodiscard]] bool is_set(const JsonValue& value, const char* field);
/// The `fallback` is for a missing or null field.
[[nodiscard]] bool truth_or(const JsonValue& value, const char* field, bool fallback);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* field, const std::string& fallback);
/// Throws ConfigError unless the id is an integer of 0 to 2^22 - 1.
[[nodiscard]] TokenId id_of(const nlohmann::json& json, const JsonValue& place, const std::string& token);

}  // namespace chimera
