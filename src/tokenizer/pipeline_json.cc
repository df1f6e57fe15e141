#include "tokenizer/pipeline_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "core/choices.h"
#include "core/printable.h"

namespace chimera {
namespace {

constexpr std::int64_t kMostIds = std::int64_t{1} << 22;
constexpr std::size_t kMostSteps = std::tuple_size_v<WordBuffers>;

constexpr std::pair<const char*, WordPattern> kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", WordPattern::Gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
     R"(\s+(?!\S)|\s+)",
     WordPattern::Llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
     R"(\s+(?!\S)|\s+)",
     WordPattern::Qwen2},
};

template <class Target>
struct PartReader {
  const char* type;
  std::vector<std::string> fields;
  std::function<void(const JsonValue& part, Target& target)> read;
};

void expect_fields(const JsonValue& part, const std::vector<std::string>& fields) {
  for (const auto& item : part.json().items()) {
    if (std::find(fields.begin(), fields.end(), item.key()) == fields.end()) {
      part.fail(unknown_name("field", item.key(), fields));
    }
  }
}

/// A Sequence has its `nested` parts in the field `list`.
template <class Target>
void read_part(const JsonValue& part, const char* what, const char* list,
               const std::vector<PartReader<Target>>& readers, Target& target, bool nested = false) {
  if (!part.json().is_object()) part.fail(fmt::format("expected an object, found {}", part.json().type_name()));
  const std::string type = part.text("type");
  if (type == "Sequence") {
    if (nested) part.fail("a Sequence inside a Sequence is not supported");
    part.expect_object({"type", list});
    for (const JsonValue& inner : part.field(list).list()) read_part(inner, what, list, readers, target, true);
    return;
  }
  std::vector<std::string> known = {"Sequence"};
  for (const auto& reader : readers) {
    known.emplace_back(reader.type);
    if (type != reader.type) continue;
    expect_fields(part, reader.fields);
    return reader.read(part, target);
  }
  part.fail(fmt::format("the {} '{}' is not supported; supported: {}", what, printable(type), fmt::join(known, ", ")));
}

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
  for (const auto& [known, name] : kPatterns) {
    if (text == known) return name;
  }
  pattern.fail(fmt::format("the pattern '{}' is not a pattern of GPT-2, Llama 3 or Qwen 2", printable(text)));
}

void read_split(const JsonValue& part, PreTokenizerParts& parts) {
  if (part.text("behavior") != "Isolated") part.fail("only the behavior Isolated is supported");
  if (truth_or(part, "invert", false)) part.fail("an inverted pattern is not supported");
  parts.steps.emplace_back(WordStep{known_pattern(part)});
}

void read_byte_level(const JsonValue& part, PreTokenizerParts& parts) {
  if (truth_or(part, "add_prefix_space", true)) parts.steps.emplace_back(BlankStep{});
  if (truth_or(part, "use_regex", true)) parts.steps.emplace_back(WordStep{WordPattern::Gpt2});
  parts.byte_level = true;
}

/// Reads always, first or never; older files have true or false.
BlankSignStep::Prepend prepend_of(const JsonValue& part) {
  using enum BlankSignStep::Prepend;
  const bool old = truth_or(part, "add_prefix_space", true);
  const std::string scheme = text_or(part, "prepend_scheme", old ? "always" : "never");
  const std::vector<std::string> names = {"always", "first", "never"};
  if (scheme == "always") return Always;
  if (scheme == "first") return First;
  if (scheme != "never") part.fail(unknown_name("prepend_scheme", scheme, names));
  return Never;
}

void read_metaspace(const JsonValue& part, PreTokenizerParts& parts) {
  BlankSignStep step;
  step.sign = part.text("replacement");
  if (step.sign.empty()) part.fail("the replacement is empty");
  step.prepend = prepend_of(part);
  step.split = truth_or(part, "split", true);
  parts.steps.emplace_back(step);
}

using TemplatePlaces = std::vector<TemplatePlace>;

const nlohmann::json& ids_of_special(const JsonValue& part, const std::string& id) {
  const nlohmann::json& tokens = part.field("special_tokens").json();
  if (!tokens.is_object() || !tokens.contains(id)) {
    part.fail(fmt::format("'{}' is not among special_tokens", printable(id)));
  }
  const nlohmann::json& token = tokens[id];
  if (!token.is_object() || !token.contains("ids") || !token["ids"].is_array()) {
    part.fail(fmt::format("the special token '{}' has no list of ids", printable(id)));
  }
  return token["ids"];
}

TemplatePlaces read_template(const JsonValue& list, const JsonValue& part) {
  TemplatePlaces places;
  for (const JsonValue& place : list.list()) {
    place.expect_object({"SpecialToken", "Sequence"});
    const bool is_token = place.has("SpecialToken");
    const JsonValue what = place.field(is_token ? "SpecialToken" : "Sequence");
    what.expect_object({"id", "type_id"});
    const auto type = static_cast<TokenId>(what.count("type_id"));
    const std::string id = what.text("id");
    if (!is_token) {
      if (id != "A" && id != "B") what.fail(fmt::format("the sequence '{}' is neither A nor B", printable(id)));
      places.push_back({.token = -1, .second = id == "B", .type = type});
      continue;
    }
    for (const nlohmann::json& one : ids_of_special(part, id)) {
      places.push_back({.token = id_of(one, what, id), .type = type});
    }
  }
  return places;
}

void read_template_processing(const JsonValue& part, PipelineParts& parts) {
  parts.single = read_template(part.field("single"), part);
  parts.pair = read_template(part.field("pair"), part);
}

/// Reads ["[SEP]", 102].
TokenId token_of_pair(const JsonValue& part, const char* field) {
  const auto pair = part.field(field).list(2, "of token and id");
  return id_of(pair[1].json(), pair[1], pair[0].text());
}

void read_bert_processing(const JsonValue& part, PipelineParts& parts) {
  set_bert_templates(parts, token_of_pair(part, "cls"), token_of_pair(part, "sep"));
}

}  // namespace

void set_bert_templates(PipelineParts& parts, TokenId cls, TokenId sep) {
  parts.single = {{.token = cls}, {}, {.token = sep}};
  parts.pair = {{.token = cls}, {}, {.token = sep}, {.second = true, .type = 1}, {.token = sep, .type = 1}};
}

bool is_set(const JsonValue& value, const char* field) { return value.has(field) && !value.json()[field].is_null(); }

bool truth_or(const JsonValue& value, const char* field, bool fallback) {
  return is_set(value, field) ? value.truth(field) : fallback;
}

std::string text_or(const JsonValue& value, const char* field, const std::string& fallback) {
  return is_set(value, field) ? value.text(field) : fallback;
}

TokenId id_of(const nlohmann::json& json, const JsonValue& place, const std::string& token) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() >= kMostIds) {
    place.fail(fmt::format("the id of '{}' is not a whole number from 0 to {}", printable(token), kMostIds - 1));
  }
  return json.get<TokenId>();
}

TextMap<TokenId> read_vocabulary(const JsonValue& value) {
  if (!value.json().is_object()) value.fail(fmt::format("expected an object, found {}", value.json().type_name()));
  TextMap<TokenId> vocabulary;
  std::unordered_map<TokenId, const std::string*> owners;
  vocabulary.reserve(value.json().size());
  for (const auto& [token, id] : value.json().items()) {
    const auto [entry, is_new] = vocabulary.emplace(token, id_of(id, value, token));
    const auto [owner, is_first] = owners.emplace(entry->second, &entry->first);
    if (!is_first) {
      value.fail(fmt::format("the id {} belongs to '{}' and to '{}'", entry->second, printable(*owner->second),
                             printable(token)));
    }
  }
  if (vocabulary.empty()) value.fail("the vocabulary is empty");
  return vocabulary;
}

Normalizer read_normalizer(const JsonValue& file) {
  using Steps = std::vector<NormalizerStep>;
  if (!is_set(file, "normalizer")) return {};
  static const std::vector<PartReader<Steps>> readers = {
      {"NFC", {"type"}, [](const JsonValue&, Steps& steps) { steps.emplace_back(ComposeStep{}); }},
      {"NFD", {"type"}, [](const JsonValue&, Steps& steps) { steps.emplace_back(DecomposeStep{}); }},
      {"Prepend",
       {"type", "prepend"},
       [](const JsonValue& part, Steps& steps) { steps.emplace_back(PrependStep{part.text("prepend")}); }},
      {"Replace",
       {"type", "pattern", "content"},
       [](const JsonValue& part, Steps& steps) {
         steps.emplace_back(ReplaceStep{string_pattern(part), part.text("content")});
       }},
      {"BertNormalizer",
       {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
       [](const JsonValue& part, Steps& steps) {
         const bool lower = truth_or(part, "lowercase", true);
         steps.emplace_back(BertStep{truth_or(part, "clean_text", true), truth_or(part, "handle_chinese_chars", true),
                                     truth_or(part, "strip_accents", lower), lower});
       }},
  };
  Steps steps;
  read_part(file.field("normalizer"), "normalizer", "normalizers", readers, steps);
  return Normalizer(std::move(steps));
}

PreTokenizerParts read_pre_tokenizer(const JsonValue& file) {
  using Parts = PreTokenizerParts;
  Parts parts;
  if (!is_set(file, "pre_tokenizer")) return parts;
  const JsonValue part = file.field("pre_tokenizer");
  const auto before_byte_level = [&part](void (*read)(const JsonValue&, Parts&)) {
    return [&part, read](const JsonValue& inner, Parts& target) {
      if (target.byte_level) part.fail("nothing may follow ByteLevel, which writes bytes as letters");
      read(inner, target);
    };
  };
  const std::vector<PartReader<Parts>> readers = {
      {"ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"}, before_byte_level(read_byte_level)},
      {"Split", {"type", "pattern", "behavior", "invert"}, before_byte_level(read_split)},
      {"Digits", {"type", "individual_digits"}, before_byte_level([](const JsonValue& inner, Parts& target) {
         target.steps.emplace_back(DigitStep{truth_or(inner, "individual_digits", false)});
       })},
      {"BertPreTokenizer", {"type"}, before_byte_level([](const JsonValue&, Parts& target) {
         target.steps.emplace_back(BertWordStep{});
       })},
      {"Metaspace",
       {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"},
       before_byte_level(read_metaspace)},
  };
  read_part(part, "pre-tokenizer", "pretokenizers", readers, parts);
  if (parts.steps.size() > kMostSteps) part.fail(fmt::format("more than {} steps are not supported", kMostSteps));
  return parts;
}

void read_post_processor(const JsonValue& file, PipelineParts& parts) {
  if (!is_set(file, "post_processor")) return;
  static const std::vector<PartReader<PipelineParts>> readers = {
      {"ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"}, [](const JsonValue&, PipelineParts&) {}},
      {"TemplateProcessing", {"type", "single", "pair", "special_tokens"}, read_template_processing},
      {"BertProcessing", {"type", "sep", "cls"}, read_bert_processing},
  };
  read_part(file.field("post_processor"), "post-processor", "processors", readers, parts);
}

Decoder read_decoder(const JsonValue& file) {
  using Steps = std::vector<DecodingStep>;
  if (!is_set(file, "decoder")) return {};
  static const std::vector<PartReader<Steps>> readers = {
      {"ByteLevel",
       {"type", "add_prefix_space", "trim_offsets", "use_regex"},
       [](const JsonValue&, Steps& steps) { steps.emplace_back(ByteLevelDecoding{}); }},
      {"WordPiece",
       {"type", "prefix", "cleanup"},
       [](const JsonValue& part, Steps& steps) {
         steps.emplace_back(WordPieceDecoding{part.text("prefix"), truth_or(part, "cleanup", true)});
       }},
      {"Replace",
       {"type", "pattern", "content"},
       [](const JsonValue& part, Steps& steps) {
         steps.emplace_back(ReplaceDecoding{string_pattern(part), part.text("content")});
       }},
      {"ByteFallback", {"type"}, [](const JsonValue&, Steps& steps) { steps.emplace_back(ByteFallbackDecoding{}); }},
      {"Fuse", {"type"}, [](const JsonValue&, Steps& steps) { steps.emplace_back(FuseDecoding{}); }},
      {"Strip",
       {"type", "content", "start", "stop"},
       [](const JsonValue& part, Steps& steps) {
         steps.emplace_back(StripDecoding{part.text("content"), static_cast<std::size_t>(part.count("start")),
                                          static_cast<std::size_t>(part.count("stop"))});
         if (part.text("content").empty()) part.fail("the content is empty");
       }},
      {"Metaspace",
       {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"},
       [](const JsonValue& part, Steps& steps) {
         const bool drops = prepend_of(part) != BlankSignStep::Prepend::Never;
         steps.emplace_back(BlankSignDecoding{part.text("replacement"), drops});
         if (part.text("replacement").empty()) part.fail("the replacement is empty");
       }},
  };
  Steps steps;
  read_part(file.field("decoder"), "decoder", "decoders", readers, steps);
  return Decoder(std::move(steps));
}

}  // namespace chimera
