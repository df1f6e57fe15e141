#pragma once

// Readers for the sections of a tokenizer.json: one for each part of a tokenizer (pipeline_tokenizer.h has a picture),
// and for single fields. An unsupported feature is an error, because the ids of tokens would be wrong if it were
// ignored. A part whose field is missing or null does nothing. All functions throw ConfigError with the position in the
// file.

#include "core/json_value.h"
#include "tokenizer/pipeline_tokenizer.h"
#include "tokenizer/word_cache.h"

namespace chimera {

/// Reads the field `normalizer` of the file.
[[nodiscard]] Normalizer read_normalizer(const JsonValue& file);

/// A pre-tokenizer as the file describes it.
struct PreTokenizerParts {
  std::vector<WordsStep> steps;
  bool byte_level = false;  ///< whether tokens are those of byte-level BPE, with a letter per byte (byte_alphabet.h)
};
/// Reads the field `pre_tokenizer` of the file.
[[nodiscard]] PreTokenizerParts read_pre_tokenizer(const JsonValue& file);

/// Reads the field `post_processor` of the file into `parts.input`: the template of a model's input, such as [CLS] text
/// [SEP].
void read_post_processor(const JsonValue& file, PipelineParts& parts);

/// Reads the field `decoder` of the file.
[[nodiscard]] Decoder read_decoder(const JsonValue& file);

/// Reads a vocabulary, an object {"token": id, ...}. Tokens and ids must be distinct.
[[nodiscard]] TextMap<TokenId> read_vocabulary(const JsonValue& value);

/// Throws ConfigError unless the value is an object. Its fields do not matter.
void require_object(const JsonValue& value);
/// Returns whether the object has the field, and the field is not null.
[[nodiscard]] bool is_set(const JsonValue& value, const char* field);
/// Return the field's value, or `fallback` unless is_set().
[[nodiscard]] bool bool_or(const JsonValue& value, const char* field, bool fallback);
[[nodiscard]] std::string text_or(const JsonValue& value, const char* field, const std::string& fallback);
/// Returns the id in `json` of a token. Throws ConfigError at `place` unless it is an integer of 0 to 2^22 - 1.
[[nodiscard]] TokenId id_of(const nlohmann::json& json, const JsonValue& place, const std::string& token);

}  // namespace chimera
