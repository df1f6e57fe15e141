#include "tokenizer/byte_tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/unicode.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFirst = "[CLS]";
constexpr const char* kLast = "[SEP]";

Json special_piece(const char* token, int type) { return {{"SpecialToken", {{"id", token}, {"type_id", type}}}}; }
Json text_piece(const char* text, int type) { return {{"Sequence", {{"id", text}, {"type_id", type}}}}; }

/// A and A B or, where BERT's tokens are there, [CLS] A [SEP] and [CLS] A [SEP] B [SEP]. save_pretrained writes one
/// where there is none, so there is one in any case.
Json template_of(const std::vector<std::string>& tokens) {
  Json used = Json::object();
  for (const char* token : {kFirst, kLast}) {
    const auto found = std::ranges::find(tokens, token);
    if (found == tokens.end()) continue;
    const auto id = found - tokens.begin();
    used[token] = {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
  }
  const bool is_bert = used.size() == 2;
  Json single = Json::array();
  if (is_bert) single.push_back(special_piece(kFirst, 0));
  single.push_back(text_piece("A", 0));
  if (is_bert) single.push_back(special_piece(kLast, 0));
  Json pair = single;
  pair.push_back(text_piece("B", 1));
  if (is_bert) pair.push_back(special_piece(kLast, 1));
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", used}};
}

}  // namespace

std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens) {
  TrainedBpe bytes;
  for (const char32_t letter : byte_letters()) append_utf8(bytes.tokens.emplace_back(), letter);
  bytes.first_special = bytes.tokens.size();
  bytes.special_tokens = special_tokens.size();
  bytes.tokens.insert(bytes.tokens.end(), special_tokens.begin(), special_tokens.end());
  Json json = Json::parse(to_tokenizer_json(bytes));
  json["post_processor"] = template_of(bytes.tokens);
  return json.dump(2) + "\n";
}

bool is_byte_tokenizer_json(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto added = json.find("added_tokens");
  if (added == json.end() || !added->is_array()) return false;
  std::vector<std::string> special_tokens;
  for (const nlohmann::json& token : *added) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) return false;
    special_tokens.push_back(token["content"]);
  }
  return json == nlohmann::json::parse(byte_tokenizer_json(special_tokens));
}

}  // namespace chimera
