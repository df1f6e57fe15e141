#include "tokenizer/pipeline_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/choices.h"
#include "core/printable.h"

// Each reader is a chain of questions, `part.is(TYPE, FIELDS)`, which ends with part.refuse(). The chain is thus the
// list of what is supported, from which refuse() takes its message, and a field that a branch does not name is an
// error: to ignore it could give other ids than the Python package tokenizers.

namespace chimera {
namespace {

// Tables are indexed by ids, so a wild id in a file must not take all memory.
constexpr std::int64_t kMaxIds = std::int64_t{1} << 22;
constexpr std::size_t kMaxSteps = std::tuple_size_v<WordBuffers>;

// The expressions exactly as the files of these models spell them. They are compared as texts; word_end()
// (pre_tokenizer.h) does what they say.
constexpr std::pair<const char*, WordPattern> kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", WordPattern::Gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
     R"(\s+(?!\S)|\s+)",
     WordPattern::Llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
     R"(\s+(?!\S)|\s+)",
     WordPattern::Qwen2},
};

/// One part of a pipeline. Code that reads it asks for each type that is supported, and then refuses the others.
class Part {
 public:
  Part(const JsonValue& json, const char* what) : json_(json), what_(what) {
    require_object(json);
    type_ = json.text("type");
    if (type_ == kSequence) json.fail("a Sequence inside a Sequence is not supported");
  }

  static constexpr const char* kSequence = "Sequence";

  /// Returns whether the part has this type, and then requires that it has no fields but `fields` and `type`.
  [[nodiscard]] bool is(const char* type, std::vector<std::string> fields = {}) {
    known_.emplace_back(type);
    if (type_ != type) return false;
    fields.insert(fields.begin(), "type");
    for (const auto& item : json_.json().items())
      if (std::ranges::count(fields, item.key()) == 0) json_.fail(unknown_name("field", item.key(), fields));
    return true;
  }
  [[noreturn]] void refuse() const {
    json_.fail(
        fmt::format("the {} '{}' is not supported; supported: {}", what_, printable(type_), fmt::join(known_, ", ")));
  }

 private:
  const JsonValue& json_;
  const char* what_;
  std::string type_;
  std::vector<std::string> known_ = {kSequence};
};

/// Returns the parts of a field: none if it is missing or null, and those in the list `list` of a Sequence.
std::vector<JsonValue> parts_of(const JsonValue& file, const char* field, const char* list) {
  if (!is_set(file, field)) return {};
  const JsonValue part = file.field(field);
  require_object(part);
  if (part.text("type") != Part::kSequence) return {part};
  part.expect_object({"type", list});
  return part.field(list).list();
}

const std::vector<std::string> kByteLevelFields = {"add_prefix_space", "trim_offsets", "use_regex"};
const std::vector<std::string> kMetaspaceFields = {"replacement", "str_rep", "add_prefix_space", "prepend_scheme",
                                                   "split"};

/// Reads {"String": text}.
std::string string_pattern(const JsonValue& part) {
  const JsonValue pattern = part.field("pattern");
  if (pattern.json().is_object() && pattern.has("Regex")) pattern.fail("a regular expression is not supported here");
  pattern.expect_object({"String"});
  std::string text = pattern.text("String");
  if (text.empty()) pattern.fail("the text to look for is empty");
  return text;
}

WordPattern known_pattern(const JsonValue& part) {
  const JsonValue pattern = part.field("pattern");
  pattern.expect_object({"Regex", "String"});
  if (!pattern.has("Regex")) pattern.fail("only the patterns of GPT-2, Llama 3 and Qwen 2 are supported");
  const std::string text = pattern.text("Regex");
  for (const auto& [known, name] : kPatterns)
    if (text == known) return name;
  pattern.fail(fmt::format("the pattern '{}' is not a pattern of GPT-2, Llama 3 or Qwen 2", printable(text)));
}

/// Reads always, first or never; older files have true or false.
BlankSignStep::Prepend prepend_of(const JsonValue& part) {
  using enum BlankSignStep::Prepend;
  const bool old = bool_or(part, "add_prefix_space", true);
  const std::string scheme = text_or(part, "prepend_scheme", old ? "always" : "never");
  const std::vector<std::string> names = {"always", "first", "never"};
  if (scheme == "always") return Always;
  if (scheme == "first") return First;
  if (scheme != "never") part.fail(unknown_name("prepend_scheme", scheme, names));
  return Never;
}

std::string replacement_of(const JsonValue& part) {
  std::string sign = part.text("replacement");
  if (sign.empty()) part.fail("the replacement is empty");
  return sign;
}

const nlohmann::json& ids_of_special(const JsonValue& part, const std::string& id) {
  const nlohmann::json& tokens = part.field("special_tokens").json();
  if (!tokens.is_object() || !tokens.contains(id))
    part.fail(fmt::format("'{}' is not among special_tokens", printable(id)));
  const nlohmann::json& token = tokens[id];
  if (!token.is_object() || !token.contains("ids") || !token["ids"].is_array())
    part.fail(fmt::format("the special token '{}' has no list of ids", printable(id)));
  return token["ids"];
}

/// Reads the template of one text; that of two texts is not used.
TokenIds read_template(const JsonValue& part) {
  TokenIds input;
  for (const JsonValue& place : part.field("single").list()) {
    place.expect_object({"SpecialToken", "Sequence"});
    const bool is_token = place.has("SpecialToken");
    const JsonValue what = place.field(is_token ? "SpecialToken" : "Sequence");
    what.expect_object({"id", "type_id"});
    const std::string id = what.text("id");
    if (is_token) {
      for (const nlohmann::json& one : ids_of_special(part, id)) input.push_back(id_of(one, what, id));
    } else if (id == "A") {
      input.push_back(kTextPlace);
    } else if (id != "B") {
      // B is the second text of a pair; there is none, so nothing is added for it.
      what.fail(fmt::format("the sequence '{}' is neither A nor B", printable(id)));
    }
  }
  return input;
}

/// Reads ["[SEP]", 102].
TokenId token_of_pair(const JsonValue& part, const char* field) {
  const auto pair = part.field(field).list(2, "of token and id");
  return id_of(pair[1].json(), pair[1], pair[0].text());
}

}  // namespace

void require_object(const JsonValue& value) {
  if (!value.json().is_object()) value.fail(fmt::format("expected an object, found {}", value.json().type_name()));
}

bool is_set(const JsonValue& value, const char* field) { return value.has(field) && !value.json()[field].is_null(); }

bool bool_or(const JsonValue& value, const char* field, bool fallback) {
  return is_set(value, field) ? value.truth(field) : fallback;
}

std::string text_or(const JsonValue& value, const char* field, const std::string& fallback) {
  return is_set(value, field) ? value.text(field) : fallback;
}

TokenId id_of(const nlohmann::json& json, const JsonValue& place, const std::string& token) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() >= kMaxIds)
    place.fail(fmt::format("the id of '{}' is not a whole number from 0 to {}", printable(token), kMaxIds - 1));
  return json.get<TokenId>();
}

TextMap<TokenId> read_vocabulary(const JsonValue& value) {
  require_object(value);
  TextMap<TokenId> vocabulary;
  // Pointers to keys stay valid, because the elements of the vocabulary do not move when it grows.
  std::unordered_map<TokenId, const std::string*> owners;
  vocabulary.reserve(value.json().size());
  for (const auto& [token, id] : value.json().items()) {
    const auto [entry, is_new] = vocabulary.emplace(token, id_of(id, value, token));
    const auto [owner, is_first] = owners.emplace(entry->second, &entry->first);
    if (!is_first)
      value.fail(fmt::format("the id {} belongs to '{}' and to '{}'", entry->second, printable(*owner->second),
                             printable(token)));
  }
  if (vocabulary.empty()) value.fail("the vocabulary is empty");
  return vocabulary;
}

Normalizer read_normalizer(const JsonValue& file) {
  Normalizer steps;
  for (const JsonValue& json : parts_of(file, "normalizer", "normalizers")) {
    Part part(json, "normalizer");
    if (part.is("NFC")) {
      steps.emplace_back(ComposeStep{});
    } else if (part.is("NFD")) {
      steps.emplace_back(DecomposeStep{});
    } else if (part.is("Prepend", {"prepend"})) {
      steps.emplace_back(PrependStep{.prefix = json.text("prepend")});
    } else if (part.is("Replace", {"pattern", "content"})) {
      steps.emplace_back(ReplaceStep{.from = string_pattern(json), .to = json.text("content")});
    } else if (part.is("BertNormalizer", {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"})) {
      // BERT strips accents of lower-case models unless the file says otherwise.
      const bool lower = bool_or(json, "lowercase", true);
      steps.emplace_back(BertStep{.clean_text = bool_or(json, "clean_text", true),
                                  .handle_chinese_chars = bool_or(json, "handle_chinese_chars", true),
                                  .strip_accents = bool_or(json, "strip_accents", lower),
                                  .lowercase = lower});
    } else {
      part.refuse();
    }
  }
  return steps;
}

PreTokenizerParts read_pre_tokenizer(const JsonValue& file) {
  PreTokenizerParts parts;
  for (const JsonValue& json : parts_of(file, "pre_tokenizer", "pretokenizers")) {
    Part part(json, "pre-tokenizer");
    // Later steps would see letters instead of bytes.
    const bool follows_byte_level = parts.byte_level;
    if (part.is("ByteLevel", kByteLevelFields)) {
      if (bool_or(json, "add_prefix_space", true)) parts.steps.emplace_back(BlankStep{});
      if (bool_or(json, "use_regex", true)) parts.steps.emplace_back(WordPattern::Gpt2);
      parts.byte_level = true;
    } else if (part.is("Split", {"pattern", "behavior", "invert"})) {
      if (json.text("behavior") != "Isolated") json.fail("only the behavior Isolated is supported");
      if (bool_or(json, "invert", false)) json.fail("an inverted pattern is not supported");
      parts.steps.emplace_back(known_pattern(json));
    } else if (part.is("Digits", {"individual_digits"})) {
      parts.steps.emplace_back(DigitStep{bool_or(json, "individual_digits", false)});
    } else if (part.is("BertPreTokenizer")) {
      parts.steps.emplace_back(BertWordStep{});
    } else if (part.is("Metaspace", kMetaspaceFields)) {
      parts.steps.emplace_back(BlankSignStep{
          .sign = replacement_of(json), .prepend = prepend_of(json), .split = bool_or(json, "split", true)});
    } else {
      part.refuse();
    }
    if (follows_byte_level)
      file.field("pre_tokenizer").fail("nothing may follow ByteLevel, which writes bytes as letters");
  }
  if (parts.steps.size() > kMaxSteps)
    file.field("pre_tokenizer").fail(fmt::format("more than {} steps are not supported", kMaxSteps));
  return parts;
}

void read_post_processor(const JsonValue& file, PipelineParts& parts) {
  for (const JsonValue& json : parts_of(file, "post_processor", "processors")) {
    Part part(json, "post-processor");
    // It only changes offsets of tokens in the text, which Chimera does not compute.
    if (part.is("ByteLevel", kByteLevelFields)) continue;
    if (part.is("TemplateProcessing", {"single", "pair", "special_tokens"}))
      parts.input = read_template(json);
    else if (part.is("BertProcessing", {"sep", "cls"}))
      parts.input = {token_of_pair(json, "cls"), kTextPlace, token_of_pair(json, "sep")};
    else
      part.refuse();
  }
}

Decoder read_decoder(const JsonValue& file) {
  Decoder steps;
  for (const JsonValue& json : parts_of(file, "decoder", "decoders")) {
    Part part(json, "decoder");
    if (part.is("ByteLevel", kByteLevelFields)) {
      steps.emplace_back(ByteLevelDecoding{});
    } else if (part.is("WordPiece", {"prefix", "cleanup"})) {
      steps.emplace_back(WordPieceDecoding{.prefix = json.text("prefix"), .cleanup = bool_or(json, "cleanup", true)});
    } else if (part.is("Replace", {"pattern", "content"})) {
      steps.emplace_back(ReplaceStep{.from = string_pattern(json), .to = json.text("content")});
    } else if (part.is("ByteFallback")) {
      steps.emplace_back(ByteFallbackDecoding{});
    } else if (part.is("Fuse")) {
      steps.emplace_back(FuseDecoding{});
    } else if (part.is("Strip", {"content", "start", "stop"})) {
      steps.emplace_back(StripDecoding{.content = json.text("content"),
                                       .start = static_cast<std::size_t>(json.count("start")),
                                       .stop = static_cast<std::size_t>(json.count("stop"))});
      if (json.text("content").empty()) json.fail("the content is empty");
    } else if (part.is("Metaspace", kMetaspaceFields)) {
      // If encoding puts a sign before the text, decoding removes it.
      const bool drops = prepend_of(json) != BlankSignStep::Prepend::Never;
      steps.emplace_back(BlankSignDecoding{.sign = replacement_of(json), .drop_first = drops});
    } else {
      part.refuse();
    }
  }
  return steps;
}

}  // namespace chimera
