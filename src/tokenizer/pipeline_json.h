#pragma once
// The parts of a tokenizer.json.

#include <vector>

#include "schedule/json_value.h"
#include "tokenizer/pipeline_tokenizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// What the parts of a file say. Everything here throws ConfigError, with the place in the file, for what Chimera does
/// not have.
[[nodiscard]] Normalizer read_normalizer(const JsonValue& file);

struct PreTokenizerParts {
  std::vector<WordsStep> steps;
  bool byte_level = false;  ///< the model's tokens are written with a letter for each byte
};
[[nodiscard]] PreTokenizerParts read_pre_tokenizer(const JsonValue& file);

/// Sets the templates.
void read_post_processor(const JsonValue& file, PipelineParts& parts);
/// BERT's: [CLS] first [SEP] second [SEP].
void set_bert_templates(PipelineParts& parts, TokenId cls, TokenId sep);

[[nodiscard]] Decoder read_decoder(const JsonValue& file);

/// {"token": id, ...}: neither a token nor an id stands there twice.
[[nodiscard]] TextMap<TokenId> read_vocabulary(const JsonValue& value);

/// True where the field is there and not null.
[[nodiscard]] bool is_set(const JsonValue& value, const char* field);
/// The field's value; `fallback` where it is missing or null.
[[nodiscard]] bool truth_or(const JsonValue& value, const char* field, bool fallback);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* field, const std::string& fallback);
/// A token's id. Throws ConfigError unless it is a whole number of 0 to 2^22 - 1: far more than any vocabulary has.
[[nodiscard]] TokenId id_of(const nlohmann::json& json, const JsonValue& place, const std::string& token);

}  // namespace chimera
