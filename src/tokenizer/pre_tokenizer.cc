#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/unicode.h"

// The patterns are regular expressions in the files; here each is a function that returns the end of the first
// alternative that matches. `Scanner` has the parts that they share. All places are byte positions, and all steps are
// over whole characters.

namespace chimera {
namespace {

// The complement of [^\s\p{L}\p{N}].
constexpr unsigned kAnyWord = kLetter | kNumber | kSpace;

struct Scanner {
  std::string_view text;
  const CharacterTable& table = character_table();

  [[nodiscard]] unsigned char byte(std::size_t i) const { return static_cast<unsigned char>(text[i]); }
  [[nodiscard]] bool at_end(std::size_t i) const { return i >= text.size(); }

  /// Returns the classes at `i`, and advances `i`.
  [[nodiscard]] unsigned take(std::size_t& i) const {
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      return table[lead];
    }
    return table[next_character(text, i)];
  }

  /// Returns the end of at most `most` characters of `classes`.
  [[nodiscard]] std::size_t run(std::size_t i, unsigned classes, std::size_t most = ~std::size_t{0}) const {
    for (; most > 0 && !at_end(i); --most) {
      std::size_t next = i;
      if ((take(next) & classes) == 0) break;
      i = next;
    }
    return i;
  }

  [[nodiscard]] std::size_t run_of_others(std::size_t i) const {
    while (!at_end(i)) {
      std::size_t next = i;
      if ((take(next) & kAnyWord) != 0) break;
      i = next;
    }
    return i;
  }

  [[nodiscard]] bool is_line_end(std::size_t i) const { return byte(i) == '\n' || byte(i) == '\r'; }

  /// Returns the word's end. A longer run before other text leaves its last character to the next word.
  /// The alternatives are \s*[\r\n]+ (`line_ends_first`), \s+(?!\S) and \s+.
  [[nodiscard]] std::size_t white_space(std::size_t i, bool line_ends_first) const {
    std::size_t last = i;      // of the run's last character
    std::size_t line_end = i;  // of its last line end
    std::size_t end = i;
    while (!at_end(end)) {
      std::size_t next = end;
      if ((take(next) & kSpace) == 0) break;
      if (is_line_end(end)) line_end = next;
      last = end;
      end = next;
    }
    if (line_ends_first && line_end > i) return line_end;
    return at_end(end) || last == i ? end : last;
  }

  /// Returns the end of a contraction at `i`, or `i`.
  [[nodiscard]] std::size_t contraction(std::size_t i, bool any_case) const {
    if (byte(i) != '\'' || at_end(i + 1)) return i;
    const auto letter = [&](std::size_t at) -> unsigned char {
      if (at_end(at)) return 0;
      const unsigned char c = byte(at);
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<unsigned char>(c + 0x20) : c;
    };
    switch (letter(i + 1)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return i + 2;
      case 'r':
      case 'v': return letter(i + 2) == 'e' ? i + 3 : i;
      case 'l': return letter(i + 2) == 'l' ? i + 3 : i;
      case 0xC5: return any_case && !at_end(i + 2) && byte(i + 2) == 0xBF ? i + 3 : i;  // long s, U+017F
      default: return i;
    }
  }
};

/// Tries the alternatives of the pattern in their order. Each starts with another class of character, so the first
/// character behind an optional blank decides.
/// Example: "don't  go1" has the words "don", "'t", " ", " go" and "1".
std::size_t end_of_gpt2_word(const Scanner& scanner, std::size_t start) {
  if (const std::size_t end = scanner.contraction(start, false); end > start) return end;
  const std::size_t body = scanner.byte(start) == ' ' ? start + 1 : start;
  if (!scanner.at_end(body)) {
    std::size_t next = body;
    const unsigned classes = scanner.take(next);
    if ((classes & kLetter) != 0) return scanner.run(next, kLetter);
    if ((classes & kNumber) != 0) return scanner.run(next, kNumber);
    if ((classes & kSpace) == 0) return scanner.run_of_others(next);
  }
  return scanner.white_space(start, false);
}

/// The words of Llama 3 and Qwen 2, alternative by alternative. Example with three digits at most: "x=(12345)" has the
/// words "x", "=(", "123", "45" and ")".
template <std::size_t most_digits>
std::size_t end_of_llama3_word(const Scanner& scanner, std::size_t start) {
  if (const std::size_t end = scanner.contraction(start, true); end > start) return end;
  std::size_t second = start;
  const unsigned first = scanner.take(second);
  if ((first & kLetter) != 0) return scanner.run(second, kLetter);
  // One digit is taken already.
  if ((first & kNumber) != 0) return scanner.run(second, kNumber, most_digits - 1);
  // [^\r\n\p{L}\p{N}]?\p{L}+: one other character may stand before letters, such as a blank or a bracket.
  if (!scanner.is_line_end(start)) {
    const std::size_t letters = scanner.run(second, kLetter);
    if (letters > second) return letters;
  }
  //  ?[^\s\p{L}\p{N}]+[\r\n]*: line ends directly behind such characters belong to them.
  const std::size_t body = scanner.byte(start) == ' ' ? second : start;
  const std::size_t others = scanner.run_of_others(body);
  if (others > body) {
    std::size_t end = others;
    while (!scanner.at_end(end) && scanner.is_line_end(end)) ++end;
    return end;
  }
  return scanner.white_space(start, true);
}

bool has_class(char32_t c, unsigned classes) { return (character_table()[c] & classes) != 0; }

}  // namespace

std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t start) {
  switch (pattern) {
    case WordPattern::Gpt2: return end_of_gpt2_word({text}, start);
    case WordPattern::Llama3: return end_of_llama3_word<3>({text}, start);
    case WordPattern::Qwen2: break;
  }
  return end_of_llama3_word<1>({text}, start);
}

std::size_t end_of_digits(std::string_view text, std::size_t start, bool individual) {
  std::size_t end = start;
  const bool is_number = has_class(next_character(text, end), kNumber);
  if (is_number && individual) return end;
  while (end < text.size()) {
    std::size_t next = end;
    if (has_class(next_character(text, next), kNumber) != is_number) break;
    end = next;
  }
  return end;
}

std::string_view next_bert_word(std::string_view text, std::size_t& start) {
  std::size_t end = start;
  while (end < text.size()) {
    std::size_t next = end;
    const char32_t c = next_character(text, next);
    if (has_class(c, kSpace)) {
      if (end > start) break;
      start = next;
    } else if (has_class(c, kPunctuation)) {
      // Punctuation is a word of its own, or ends the word before it.
      if (end == start) end = next;
      break;
    }
    end = next;
  }
  const std::string_view word = text.substr(start, end - start);
  start = end;
  return word;
}

std::string_view with_signs(const BlankSignStep& step, std::string_view text, bool first, std::string& buffer) {
  buffer.clear();
  // A blank at the start becomes a sign below, so none is added.
  const bool wants =
      step.prepend == BlankSignStep::Prepend::Always || (step.prepend == BlankSignStep::Prepend::First && first);
  if (wants && text.front() != ' ' && !text.starts_with(step.sign)) buffer += step.sign;
  return buffer += replace_all(text, " ", step.sign);
}

}  // namespace chimera
