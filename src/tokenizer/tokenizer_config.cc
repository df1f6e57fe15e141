#include "tokenizer/tokenizer_config.h"

#include <algorithm>

#include "core/choices.h"
#include "core/printable.h"
#include "core/reject.h"
#include "tokenizer/pipeline_json.h"

// Reading is lenient: a field that Chimera does not support is only noted in `unsupported`. It matters only for
// vocab.json and vocab.txt, whose whole pipeline follows from this file, and special_tokens() refuses it there. A
// tokenizer.json has its own pipeline, which tokenizer_json.cc compares with `flags`.

namespace chimera {
namespace {

constexpr const char* kTokenFields[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
/// Other values change ids or templates.
constexpr std::pair<const char*, bool> kExpected[] = {
    {"add_prefix_space", false}, {"add_bos_token", false}, {"add_eos_token", false}, {"do_basic_tokenize", true}};
/// Lists and objects that must be empty.
constexpr const char* kExpectedEmpty[] = {"never_split", "additional_special_tokens", "extra_special_tokens"};

/// Returns whether a token does not match like a plain text.
bool has_flags(const JsonValue& token) {
  const auto is_true = [&token](const char* flag) { return bool_or(token, flag, false); };
  return is_true("lstrip") || is_true("rstrip") || is_true("single_word");
}

void read_named_tokens(const JsonValue& file, TokenizerConfig& config) {
  for (const char* field : kTokenFields) {
    if (!is_set(file, field)) continue;
    const JsonValue token = file.field(field);
    const bool is_object = token.json().is_object();
    config.named[field] = is_object ? token.text("content") : token.text();
    if (is_object && has_flags(token)) config.unsupported = field;
  }
}

/// Reads {"50256": {"content": ..., "lstrip": false, ...}, ...}.
void read_added_tokens_decoder(const JsonValue& file, const std::string& source, TokenizerConfig& config) {
  constexpr const char* kField = "added_tokens_decoder";
  if (!is_set(file, kField)) return;
  const JsonValue tokens = file.field(kField);
  require_object(tokens);
  for (const auto& item : tokens.json().items()) {
    const std::string& key = item.key();
    const auto id = parse_number<TokenId>(key);
    if (!id) tokens.fail(fmt::format("'{}' is not a token id", printable(key)));
    const JsonValue entry = tokens.field(key.c_str());
    require_object(entry);
    config.listed.push_back({entry.text("content"), *id, source});
    if (has_flags(entry)) config.unsupported = kField;
  }
}

/// Reads a list or an object of tokens, each a text or {"content": ...}.
void read_more_special(const JsonValue& file, const char* field, TokenizerConfig& config) {
  if (!is_set(file, field)) return;
  for (const nlohmann::json& token : file.json()[field]) {
    const nlohmann::json& content = token.is_object() && token.contains("content") ? token["content"] : token;
    if (content.is_string()) config.more_special.push_back(content);
  }
}

void read_unsupported(const JsonValue& file, TokenizerConfig& config) {
  for (const auto& [field, expected] : kExpected)
    if (bool_or(file, field, expected) != expected) config.unsupported = field;
  for (const char* field : kExpectedEmpty)
    if (is_set(file, field) && !file.json()[field].empty()) config.unsupported = field;
}

}  // namespace

std::string TokenizerConfig::token(const std::string& field) const {
  const auto found = named.find(field);
  return found == named.end() ? "" : found->second;
}

TokenizerConfig read_tokenizer_config(const std::string& text, const std::string& source) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue file(json, source);
  require_object(file);
  TokenizerConfig config{.source = source, .tokenizer_class = text_or(file, "tokenizer_class", "")};
  read_named_tokens(file, config);
  for (const char* field : {"additional_special_tokens", "extra_special_tokens"})
    read_more_special(file, field, config);
  for (const char* flag : {"add_prefix_space", "do_lower_case", "strip_accents", "tokenize_chinese_chars",
                           "fix_mistral_regex", "split_special_tokens"})
    if (is_set(file, flag)) config.flags[flag] = file.truth(flag);
  read_added_tokens_decoder(file, source, config);
  config.bert.lowercase = bool_or(file, "do_lower_case", true);
  config.bert.strip_accents = bool_or(file, "strip_accents", config.bert.lowercase);
  config.bert.handle_chinese_chars = bool_or(file, "tokenize_chinese_chars", true);
  read_unsupported(file, config);
  return config;
}

void add_listed_tokens(const std::string& text, const std::string& source, TokenizerConfig& config) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue file(json, source);
  require_object(file);
  for (const auto& [token, id] : json.items()) config.listed.push_back({token, id_of(id, file, token), source});
}

std::vector<AddedToken> special_tokens(const TokenizerConfig& config, const std::map<std::string, std::string>& usual,
                                       const TextMap<TokenId>& vocabulary, const std::string& source) {
  constexpr const char* kRemedy = "save a tokenizer.json";
  if (!config.unsupported.empty())
    reject("{}: {} of tokenizer_config.json is not supported for this file; {}", source, config.unsupported, kRemedy);
  std::vector<AddedToken> tokens;
  const auto find = [&tokens](const std::string& content) {
    return std::ranges::find(tokens, content, &AddedToken::content);
  };
  std::map<std::string, std::string> wanted = config.named;
  wanted.insert(usual.begin(), usual.end());
  for (const auto& [field, content] : wanted) {
    const auto known = vocabulary.find(content);
    // Several fields may name one token, such as <|endoftext|> for GPT-2.
    if (known != vocabulary.end() && find(content) == tokens.end()) {
      tokens.push_back({.id = known->second, .content = content, .normalized = false, .special = true});
    } else if (known == vocabulary.end() && config.named.contains(field)) {
      reject("{}: '{}', the {} of tokenizer_config.json, is not in the vocabulary; {}", source, printable(content),
             field, kRemedy);
    }
  }
  // A listed token that is not special would be matched as plain text here, but not by transformers.
  for (const ListedToken& listed : config.listed) {
    if (const auto known = find(listed.content); known != tokens.end() && known->id == listed.id) continue;
    reject("{}: '{}' with the id {} is not a special token of {}; {}", listed.source, printable(listed.content),
           listed.id, source, kRemedy);
  }
  return tokens;
}

}  // namespace chimera
