#include "tokenizer/unicode.h"

#include <simdjson.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/error.h"

namespace chimera {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};
struct Mapping {
  char32_t from;
  char32_t to;
};

namespace tables {
#include "tokenizer/unicode_tables.inc"

// Properties of characters come from tables in unicode_tables.inc, because ICU's version depends on the system, and ids
// of tokens must not. Only normal forms come from ICU: Unicode never changes those of existing characters, and
// characters that are younger than the Python package's tables are left out by is_young().

}  // namespace tables

constexpr std::size_t kCodePoints = 0x110000;
constexpr char32_t kReplacement = 0xFFFD;

/// Returns the character at `position`, negative if it is invalid, and moves `position` behind it or behind its
/// longest valid prefix, at least one byte.
UChar32 take_character(std::string_view text, std::size_t& position) {
  // A character has at most four bytes; the cut keeps ICU's 32-bit lengths in range.
  constexpr std::size_t kLongest = 4;
  const std::string_view rest = text.substr(position, kLongest);
  const auto size = static_cast<std::int32_t>(rest.size());
  std::int32_t length = 0;
  UChar32 c = 0;
  U8_NEXT(rest.data(), length, size, c);
  position += static_cast<std::size_t>(length);
  return c;
}

/// tokenizers normalizes by Unicode 9; ICU knows later characters, which must stay as they are.
bool is_young(char32_t c) {
  UVersionInfo age{};
  u_charAge(static_cast<UChar32>(c), age);
  constexpr std::uint8_t kKnown = 9;
  return age[0] > kKnown || (age[0] == kKnown && age[1] > 0);
}

void append_normalized(std::string& out, std::string_view text, const icu::Normalizer2& normalizer) {
  if (text.empty()) return;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode status = U_ZERO_ERROR;
  normalizer.normalizeUTF8(0, {text.data(), static_cast<std::int32_t>(text.size())}, sink, nullptr, status);
  if (U_FAILURE(status)) throw Error(std::string("ICU cannot normalize a text: ") + u_errorName(status));
}

std::string normalization_of(std::string_view text, const icu::Normalizer2* normalizer, UErrorCode status) {
  if (U_FAILURE(status)) throw Error(std::string("ICU has no normal forms: ") + u_errorName(status));
  std::string out;
  // Decomposed texts are a little longer.
  out.reserve(text.size() + text.size() / 8);
  constexpr std::size_t kMaxAtOnce = std::size_t{1} << 28;  // ICU's lengths have 31 bits
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t here = i;
    const char32_t c = next_character(text, i);
    // Text before a line end never combines with it.
    const bool may_cut = c == U'\n' && here - start > kMaxAtOnce;
    if (!may_cut && (c < 0x80 || !is_young(c))) continue;
    append_normalized(out, text.substr(start, here - start), *normalizer);
    out += text.substr(here, i - here);
    start = i;
  }
  append_normalized(out, text.substr(start), *normalizer);
  return out;
}

/// Returns one table of 2 MiB for all properties: one access then answers any question about a character.
CharacterTable make_table() {
  CharacterTable classes(kCodePoints);
  const auto mark = [&classes](const auto& ranges, CharacterClass character_class) {
    for (const Range range : ranges)
      for (char32_t c = range.first; c <= range.last; ++c) classes[c] |= character_class;
  };
  mark(tables::kLetters, kLetter);
  mark(tables::kNumbers, kNumber);
  mark(tables::kSpaces, kSpace);
  mark(tables::kWordCharacters, kWordCharacter);
  mark(tables::kDroppedByBert, kBertDrops);
  mark(tables::kBlankForBert, kBertBlank);
  mark(tables::kChinese, kChinese);
  mark(tables::kAccents, kAccent);
  mark(tables::kPunctuation, kPunctuation);
  return classes;
}

}  // namespace

const CharacterTable& character_table() {
  static const CharacterTable table = make_table();
  return table;
}

char32_t next_character(std::string_view text, std::size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  std::size_t end = position;
  const UChar32 c = lead < 0x80 ? lead : take_character(text, end);
  // An invalid byte counts alone here, unlike in with_replacements().
  position = lead < 0x80 || c < 0 ? position + 1 : end;
  return c < 0 ? kReplacement : static_cast<char32_t>(c);
}

char32_t character_before(std::string_view text, std::size_t position) {
  std::size_t start = position - 1;
  // Walks back over continuation bytes (10xxxxxx), at most three.
  const std::size_t least = position < 4 ? 0 : position - 4;
  while (start > least && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return next_character(text.substr(0, position), start);
}

void append_utf8(std::string& text, char32_t c) {
  char bytes[U8_MAX_LENGTH];
  std::size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, c);
  text.append(bytes, length);
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  // Almost every text is valid: the fast check first.
  if (simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    if (take_character(text, i) < 0) return start;
  }
  return std::nullopt;
}

std::string with_replacements(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const UChar32 c = take_character(text, i);
    append_utf8(out, c < 0 ? kReplacement : static_cast<char32_t>(c));
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  std::size_t start = 0;
  for (std::size_t found = text.find(from); found != text.npos; found = text.find(from, start)) {
    out.append(text.substr(start, found - start)).append(to);
    start = found + from.size();
  }
  return out.append(text.substr(start));
}

bool is_ascii(std::string_view text) {
  // Without an early exit, so that compilers vectorize.
  return std::accumulate(text.begin(), text.end(), 0U, [](unsigned all, unsigned char c) { return all | c; }) < 0x80;
}

void append_lower(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c >= U'A' && c <= U'Z' ? c + 0x20 : c);
    return;
  }
  if (c == 0x130) {  // the only lower case of two characters
    text += "i\u0307";
    return;
  }
  // The table is sorted by the upper-case character.
  const auto* found = std::lower_bound(std::begin(tables::kLower), std::end(tables::kLower), c,
                                       [](const Mapping& mapping, char32_t of) { return mapping.from < of; });
  append_utf8(text, found != std::end(tables::kLower) && found->from == c ? found->to : c);
}

std::string compose(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  return normalization_of(text, icu::Normalizer2::getNFCInstance(status), status);
}

std::string decompose(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  return normalization_of(text, icu::Normalizer2::getNFDInstance(status), status);
}

}  // namespace chimera
