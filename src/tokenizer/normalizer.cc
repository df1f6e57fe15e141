#include "tokenizer/normalizer.h"

#include "tokenizer/unicode.h"

namespace chimera {
namespace {

/// Returns what `put(out, character, its classes)` appends to `out` for all characters of the text.
template <class Put>
std::string mapped(std::string_view text, Put put) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_character(text, i);
    put(out, c, character_table()[c]);
  }
  return out;
}

/// BERT's steps for ASCII, most of English text, in one pass without tables of other characters.
std::string bert_ascii(std::string_view text, const BertStep& step) {
  std::string out;
  out.reserve(text.size());
  for (const char byte : text) {
    const auto c = static_cast<unsigned char>(byte);
    const unsigned classes = character_table()[c];
    if (step.clean_text && (classes & kBertDrops) != 0) continue;
    if (step.clean_text && (classes & kBertBlank) != 0)
      out += ' ';
    else
      out += static_cast<char>(step.lowercase && c >= 'A' && c <= 'Z' ? c + 0x20 : c);
  }
  return out;
}

std::string bert(std::string_view text, const BertStep& step) {
  if (is_ascii(text)) return bert_ascii(text, step);
  std::string out = mapped(text, [&](std::string& to, char32_t c, unsigned classes) {
    if (step.clean_text && (classes & kBertDrops) != 0) return;
    if (step.clean_text && (classes & kBertBlank) != 0) c = U' ';
    const bool apart = step.handle_chinese_chars && (classes & kChinese) != 0;
    if (apart) to += ' ';
    append_utf8(to, c);
    if (apart) to += ' ';
  });
  if (step.strip_accents) {
    // NFD splits a letter and its accent into two characters; marks are then dropped.
    out = mapped(decompose(out), [](std::string& to, char32_t c, unsigned classes) {
      if ((classes & kAccent) == 0) append_utf8(to, c);
    });
  }
  if (!step.lowercase) return out;
  return mapped(out, [](std::string& to, char32_t c, unsigned) { append_lower(to, c); });
}

/// One step of a normalizer on a text. Normal forms do not change ASCII text, so they return it without a copy.
struct Application {
  std::string_view text;
  std::string& buffer;
  bool continues;

  std::string_view take(std::string result) const {
    // The result was complete before: `text` may lie in the buffer.
    buffer = std::move(result);
    return buffer;
  }
  std::string_view operator()(const ComposeStep&) const { return is_ascii(text) ? text : take(compose(text)); }
  std::string_view operator()(const DecomposeStep&) const { return is_ascii(text) ? text : take(decompose(text)); }
  std::string_view operator()(const PrependStep& step) const {
    return text.empty() || continues ? text : take(step.prefix + std::string(text));
  }
  std::string_view operator()(const ReplaceStep& step) const { return take(replace_all(text, step.from, step.to)); }
  std::string_view operator()(const BertStep& step) const { return take(bert(text, step)); }
};

}  // namespace

std::string_view normalize(const Normalizer& normalizer, std::string_view text, std::string& buffer, bool continues) {
  for (const NormalizerStep& step : normalizer) text = std::visit(Application{text, buffer, continues}, step);
  return text;
}

}  // namespace chimera
