#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <set>

#include "core/choices.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/reject.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pipeline_json.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_piece_model.h"

// The order in tokenizer_from_json() follows from what depends on what: the vocabulary first, which the model, the ids
// of added tokens and the template all refer to; then the parts of the pipeline; last the checks against
// tokenizer_config.json, which transformers reads as well.

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFirst = "[CLS]";
constexpr const char* kLast = "[SEP]";

Json special_piece(const char* token, int type) { return {{"SpecialToken", {{"id", token}, {"type_id", type}}}}; }
Json text_piece(const char* text, int type) { return {{"Sequence", {{"id", text}, {"type_id", type}}}}; }

/// A and A B, or with BERT's tokens [CLS] A [SEP] and [CLS] A [SEP] B [SEP]. save_pretrained would add a missing
/// template.
Json template_of(const std::vector<std::string>& tokens) {
  Json used = Json::object();
  for (const char* token : {kFirst, kLast}) {
    const auto found = std::ranges::find(tokens, token);
    if (found == tokens.end()) continue;
    // The id of a token is its place in the list.
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

std::string in_quotes(std::string_view token) { return "'" + printable(token) + "'"; }

std::pair<std::string, std::string> read_merge(const JsonValue& merges, std::size_t i) {
  const nlohmann::json& merge = merges.json()[i];
  const auto is_text = [](const nlohmann::json& part) { return part.is_string(); };
  if (merge.is_array() && merge.size() == 2 && std::all_of(merge.begin(), merge.end(), is_text))
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos)
      return {text.substr(0, blank), text.substr(blank + 1)};
  }
  merges.fail(fmt::format("merge {} is neither [\"left\", \"right\"] nor \"left right\"", i + 1));
}

TokenId named_token(const JsonValue& model, const char* field, const TextMap<TokenId>& vocabulary) {
  const std::string token = model.text(field);
  const auto found = vocabulary.find(token);
  if (found == vocabulary.end()) model.fail(fmt::format("{} {} is not in the vocabulary", field, in_quotes(token)));
  return found->second;
}

std::unique_ptr<WordModel> read_bpe(const JsonValue& model, const std::string& source, bool byte_level,
                                    TextMap<TokenId>& vocabulary) {
  model.expect_object({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                       "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (is_set(model, "dropout") && model.field("dropout").number() != 0)
    model.fail("dropout is not supported: the same text would get other ids each time");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!text_or(model, affix, "").empty()) model.fail(fmt::format("a {} is not supported for BPE", affix));
  BpeParts parts;
  // Moved in, and out again below, because a copy of 100,000 texts takes long.
  parts.vocabulary = std::move(vocabulary);
  const JsonValue merges = model.field("merges");
  if (!merges.json().is_array()) merges.fail(fmt::format("expected an array, found {}", merges.json().type_name()));
  for (std::size_t i = 0; i < merges.json().size(); ++i) parts.merges.push_back(read_merge(merges, i));
  parts.byte_level = byte_level;
  parts.byte_fallback = bool_or(model, "byte_fallback", false);
  if (byte_level && parts.byte_fallback) model.fail("byte_fallback with a ByteLevel pre-tokenizer is not supported");
  parts.fuse_unknown = bool_or(model, "fuse_unk", false);
  parts.whole_words_first = bool_or(model, "ignore_merges", false);
  if (!text_or(model, "unk_token", "").empty()) parts.unknown = named_token(model, "unk_token", parts.vocabulary);
  auto bpe = make_bpe_model(parts, source);
  vocabulary = std::move(parts.vocabulary);
  return bpe;
}

std::unique_ptr<WordModel> read_word_piece(const JsonValue& model, const TextMap<TokenId>& vocabulary) {
  model.expect_object({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  WordPieceParts parts;
  parts.vocabulary = vocabulary;
  parts.unknown = named_token(model, "unk_token", vocabulary);
  parts.continuing = text_or(model, "continuing_subword_prefix", parts.continuing);
  if (is_set(model, "max_input_chars_per_word"))
    parts.most_characters = static_cast<std::size_t>(model.count("max_input_chars_per_word"));
  return make_word_piece_model(std::move(parts));
}

/// Old files lack the type.
std::string type_of(const JsonValue& model) {
  require_object(model);
  if (model.has("type")) return model.text("type");
  return model.has("merges") ? "BPE" : "WordPiece";
}

std::vector<AddedToken> read_added(const JsonValue& file, const TextMap<TokenId>& vocabulary) {
  std::vector<AddedToken> tokens;
  if (!is_set(file, "added_tokens")) return tokens;
  TextMap<TokenId> seen;
  // Ids must be as in tokenizers: the model's id of the text, or the next free id.
  auto next = static_cast<TokenId>(vocabulary.size());
  for (const JsonValue& value : file.field("added_tokens").list()) {
    value.expect_object({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = value.text("content");
    token.id = id_of(value.field("id").json(), value, token.content);
    token.single_word = bool_or(value, "single_word", false);
    token.lstrip = bool_or(value, "lstrip", false);
    token.rstrip = bool_or(value, "rstrip", false);
    token.special = bool_or(value, "special", false);
    token.normalized = bool_or(value, "normalized", !token.special);
    if (token.content.empty()) value.fail("the content is empty");
    if (!seen.emplace(token.content, token.id).second)
      value.fail(fmt::format("{} is given twice; leave one of them out", in_quotes(token.content)));
    const auto known = vocabulary.find(token.content);
    const TokenId expected = known != vocabulary.end() ? known->second : next;
    if (token.id != expected)
      value.fail(
          fmt::format("{} has the id {}, but tokenizers gives it {}", in_quotes(token.content), token.id, expected));
    if (token.id >= next) next = token.id + 1;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void check_template(const JsonValue& file, const PipelineParts& parts) {
  // Only now all tokens are known, those of the vocabulary and the added ones.
  std::set<TokenId> ids = {kTextPlace};
  for (const auto& [text, id] : parts.vocabulary) ids.insert(id);
  for (const AddedToken& token : parts.added) ids.insert(token.id);
  for (const TokenId token : parts.input)
    if (!ids.contains(token)) file.fail(fmt::format("post_processor: no token has the id {}", token));
}

template <class Step>
bool has_step(const PreTokenizer& steps) {
  return std::ranges::any_of(steps, [](const WordsStep& step) { return std::holds_alternative<Step>(step); });
}

/// Throws ConfigError if a setting of tokenizer_config.json would make transformers change the pipeline of the file.
void require_same_pipeline(const TokenizerConfig& config, const PipelineParts& parts, const std::string& source) {
  const auto refuse = [&](const std::string& what) {
    reject("{}: {}, so that transformers would give other ids than {}; make both files agree", config.source, what,
           source);
  };
  for (const char* flag : {"fix_mistral_regex", "split_special_tokens"})
    if (const auto found = config.flags.find(flag); found != config.flags.end() && found->second)
      refuse(fmt::format("{} is true", flag));
  const auto require = [&](const char* flag, bool own) {
    const auto found = config.flags.find(flag);
    if (found != config.flags.end() && found->second != own) refuse(fmt::format("{} is {}", flag, found->second));
  };
  // The flag is about a blank before the first word, which only pre-tokenizers with a word pattern add.
  if (has_step<WordPattern>(parts.pre_tokenizer)) require("add_prefix_space", has_step<BlankStep>(parts.pre_tokenizer));
  if (!config.tokenizer_class.starts_with("Bert") || parts.normalizer.size() != 1) return;
  if (const auto* bert = std::get_if<BertStep>(&parts.normalizer.front())) {
    require("do_lower_case", bert->lowercase);
    require("strip_accents", bert->strip_accents);
    require("tokenize_chinese_chars", bert->handle_chinese_chars);
  }
}

/// transformers also finds the tokens that tokenizer_config.json names in texts. Adds those of the vocabulary; a token
/// that only tokenizer_config.json has would get a new id, which is refused unless it only pads.
void add_named_tokens(const TokenizerConfig& config, const TextMap<TokenId>& vocabulary, const std::string& source,
                      std::vector<AddedToken>& added) {
  const auto add = [&](const std::string& content, bool must_exist) {
    if (std::ranges::find(added, content, &AddedToken::content) != added.end()) return;
    const auto known = vocabulary.find(content);
    if (known != vocabulary.end())
      added.push_back({.id = known->second, .content = content, .normalized = false, .special = true});
    else if (must_exist)
      reject("{}: {} is not a token of {}; save the tokenizer with save_pretrained", config.source, in_quotes(content),
             source);
  };
  for (const auto& [field, content] : config.named) add(content, /*must_exist=*/false);
  for (const std::string& content : config.more_special) add(content, /*must_exist=*/true);
  for (const ListedToken& token : config.listed) add(token.content, /*must_exist=*/true);
}

}  // namespace

std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens) {
  TrainedBpe bytes;
  for (const char32_t letter : kByteLetters) append_utf8(bytes.tokens.emplace_back(), letter);
  bytes.first_special = bytes.tokens.size();
  bytes.special_tokens = special_tokens.size();
  bytes.tokens.insert(bytes.tokens.end(), special_tokens.begin(), special_tokens.end());
  Json json = read_ordered_json(to_tokenizer_json(bytes));
  json["post_processor"] = template_of(bytes.tokens);
  return json_text(json, 2) + "\n";
}

bool is_byte_tokenizer_json(const std::string& text) {
  const nlohmann::json json = try_json(text);
  if (!json.is_object()) return false;
  const auto added = json.find("added_tokens");
  if (added == json.end() || !added->is_array()) return false;
  // Makes the file that an export would write with these special tokens, and compares.
  std::vector<std::string> special_tokens;
  for (const nlohmann::json& token : *added) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) return false;
    special_tokens.push_back(token["content"]);
  }
  // Equal content means equal ids; layout and order of fields do not matter.
  return json == read_json(byte_tokenizer_json(special_tokens));
}

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& source,
                                               const TokenizerConfig& config) {
  const nlohmann::json json = parse_json(text, source);
  const JsonValue file(json, source);
  file.expect_object({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model"});
  // truncation and padding are those of the program that wrote the file; transformers resets both.
  const JsonValue model = file.field("model");
  const std::string type = type_of(model);
  if (type != "BPE" && type != "WordPiece")
    model.fail(fmt::format("the model {} is not supported; supported: BPE, WordPiece", in_quotes(type)));
  TextMap<TokenId> vocabulary = read_vocabulary(model.field("vocab"));
  PreTokenizerParts words = read_pre_tokenizer(file);
  PipelineParts parts;
  if (type == "BPE")
    parts.model = read_bpe(model, source, words.byte_level, vocabulary);
  else if (words.byte_level)
    model.fail("WordPiece with a ByteLevel pre-tokenizer is not supported");
  else
    parts.model = read_word_piece(model, vocabulary);
  parts.normalizer = read_normalizer(file);
  parts.pre_tokenizer = std::move(words.steps);
  require_same_pipeline(config, parts, source);
  parts.added = read_added(file, vocabulary);
  add_named_tokens(config, vocabulary, source, parts.added);
  parts.decoder = read_decoder(file);
  parts.vocabulary.assign(vocabulary.begin(), vocabulary.end());
  read_post_processor(file, parts);
  check_template(file, parts);
  const std::string end_of_document = config.token("eos_token");
  parts.end_of_document = end_of_document;
  auto tokenizer = make_pipeline_tokenizer(std::move(parts));
  if (end_of_document.empty() || tokenizer->find_token(end_of_document)) return tokenizer;
  reject("{}: {}, the eos_token of tokenizer_config.json, is not one of its tokens; name one of them there", source,
         in_quotes(end_of_document));
}

}  // namespace chimera
