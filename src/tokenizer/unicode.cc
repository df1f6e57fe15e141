#include "tokenizer/unicode.h"

#include <simdjson.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cstring>
#include <iterator>

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
}  // namespace tables

constexpr std::size_t kCodePoints = 0x110000;
constexpr char32_t kReplacement = 0xFFFD;

/// Returns the length of the valid character at the start of `text`. If it is invalid, returns 0, and `broken` is the
/// length of its longest valid prefix, at least 1.
std::size_t valid_length(std::string_view text, std::size_t& broken) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  broken = 1;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // This range excludes overlong forms, surrogates, and values beyond Unicode.
  unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i, least = 0x80, most = 0xBF) {
    if (i == text.size() || byte(i) < least || byte(i) > most) {
      broken = i;
      return 0;
    }
  }
  return length;
}

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
  out.reserve(text.size() + text.size() / 8);
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 28;  // ICU's lengths have 31 bits
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t here = i;
    const char32_t c = next_character(text, i);
    // Text before a line end never combines with it.
    const bool may_cut = c == U'\n' && here - start > kMostAtOnce;
    if (!may_cut && (c < 0x80 || !is_young(c))) continue;
    append_normalized(out, text.substr(start, here - start), *normalizer);
    out += text.substr(here, i - here);
    start = i;
  }
  append_normalized(out, text.substr(start), *normalizer);
  return out;
}

}  // namespace

CharacterTable::CharacterTable() : classes_(kCodePoints) {
  const auto mark = [this](const auto& ranges, CharacterClass character_class) {
    for (const Range range : ranges) {
      for (char32_t c = range.first; c <= range.last; ++c) classes_[c] |= character_class;
    }
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
}

const CharacterTable& character_table() {
  static const CharacterTable table;
  return table;
}

char32_t next_character(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    ++position;
    return lead;
  }
  std::size_t broken = 0;
  const std::size_t length = valid_length(text.substr(position, 4), broken);
  char32_t c = kReplacement;
  if (length == 2) c = (lead & 0x1F) << 6 | (byte(1) & 0x3FU);
  if (length == 3) c = (lead & 0x0F) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
  if (length == 4) c = (lead & 0x07) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU);
  position += std::max<std::size_t>(length, 1);
  return c;
}

char32_t character_before(std::string_view text, std::size_t position) {
  std::size_t start = position - 1;
  const std::size_t least = position < 4 ? 0 : position - 4;
  while (start > least && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return next_character(text.substr(0, position), start);
}

void append_utf8(std::string& text, char32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xC0 | c >> 6), tail(0)};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
  }
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  std::size_t broken = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = valid_length(text.substr(i), broken);
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

std::string with_replacements(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    std::size_t broken = 0;
    const std::size_t length = valid_length(text.substr(i), broken);
    if (length > 0) {
      out += text.substr(i, length);
    } else {
      append_utf8(out, kReplacement);
    }
    i += length > 0 ? length : broken;
  }
  return out;
}

bool is_ascii(std::string_view text) {
  std::uint64_t all = 0;
  std::size_t i = 0;
  for (; i + sizeof all <= text.size(); i += sizeof all) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, sizeof word);
    all |= word;
  }
  for (; i < text.size(); ++i) all |= static_cast<unsigned char>(text[i]);
  return (all & 0x8080'8080'8080'8080U) == 0;
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
  const auto* found = std::lower_bound(std::begin(tables::kLower), std::end(tables::kLower), c,
                                       [](const Mapping& mapping, char32_t of) { return mapping.from < of; });
  append_utf8(text, found != std::end(tables::kLower) && found->from == c ? found->to : c);
}

std::string composed(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  return normalization_of(text, icu::Normalizer2::getNFCInstance(status), status);
}

std::string decomposed(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  return normalization_of(text, icu::Normalizer2::getNFDInstance(status), status);
}

}  // namespace chimera
