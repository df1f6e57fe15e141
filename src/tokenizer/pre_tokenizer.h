#pragma once

// Divides a text into words, which the tokenizer's model (such as BPE) then encodes one by one. A PreTokenizer has the
// steps of a tokenizer.json; each step divides or changes the words of the step before. The patterns of GPT-2, Llama 3
// and Qwen 2 are written as code, because regular expressions would be ten times slower, and use other versions of
// Unicode.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chimera {

/// Patterns of words, as regular expressions in the files of these models.
enum class WordPattern : std::uint8_t {
  Gpt2,    ///< 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  Llama3,  ///< as Gpt2, but: ignores case; one character before letters joins them; at most three digits; line ends
           ///< apart
  Qwen2,   ///< as Llama3, but single digits
};

/// Returns the end (byte position) of the word that starts at `start`, which is before the end of the text.
[[nodiscard]] std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t start);

/// Separates numbers from other text.
struct DigitStep {
  bool individual = false;  ///< whether each digit is a word of its own
};
/// Adds a blank before the text, unless it starts with one.
struct BlankStep {};
/// Splits at white space, and separates punctuation.
struct BertWordStep {};
/// Replaces blanks by a sign, which starts a word (Metaspace in tokenizer.json).
struct BlankSignStep {
  enum class Prepend { Always, First, Never };
  std::string sign = "\u2581";
  Prepend prepend = Prepend::Always;  ///< whether to put a sign before the text; First: only at the start of a document
  bool split = true;                  ///< whether to divide the text before each sign
};
/// A step; WordPattern divides a text by the pattern.
using WordsStep = std::variant<WordPattern, DigitStep, BlankStep, BertWordStep, BlankSignStep>;

/// Memory for changed texts, one string per step.
using WordBuffers = std::array<std::string, 4>;

/// The steps in order, at most as many as there are buffers.
using PreTokenizer = std::vector<WordsStep>;

/// Returns the end of the run of digits, or of other characters, that begins at `start`. If `individual`, each digit is
/// a run.
[[nodiscard]] std::size_t end_of_digits(std::string_view text, std::size_t start, bool individual);
/// Returns the next word of BertWordStep from `start` on, and sets `start` to its end. Returns an empty text at the
/// end.
[[nodiscard]] std::string_view next_bert_word(std::string_view text, std::size_t& start);
/// Returns the text with signs for blanks. `first`: whether the text is at the start of a document. The result may be
/// in `buffer`.
[[nodiscard]] std::string_view with_signs(const BlankSignStep& step, std::string_view text, bool first,
                                          std::string& buffer);

/// Calls `take(word)` for each word of the pattern.
template <class Take>
void split_words(WordPattern pattern, std::string_view text, const Take& take) {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = word_end(pattern, text, start);
    take(text.substr(start, end - start));
    start = end;
  }
}

/// Applies the steps from `step` on to a text, and calls `take(word)` for each non-empty word. `first`: whether the
/// text is at the start of a document. A word is valid only during its `take`, because the next one may overwrite it in
/// `buffers`.
template <class Take>
void split(const PreTokenizer& steps, std::string_view text, bool first, WordBuffers& buffers, const Take& take,
           std::size_t step = 0) {
  if (text.empty()) return;
  if (step == steps.size()) return take(text);
  const auto pass_on = [&](std::string_view word) {
    split(steps, word, first && word.data() == text.data(), buffers, take, step + 1);
  };
  std::string& buffer = buffers[step];
  if (const auto* pattern = std::get_if<WordPattern>(&steps[step])) {
    if (step + 1 == steps.size()) return split_words(*pattern, text, take);
    return split_words(*pattern, text, pass_on);
  }
  if (const auto* digits = std::get_if<DigitStep>(&steps[step])) {
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = end_of_digits(text, start, digits->individual);
      pass_on(text.substr(start, end - start));
      start = end;
    }
  } else if (std::holds_alternative<BlankStep>(steps[step])) {
    if (text.front() == ' ') return pass_on(text);
    text = buffer.assign(1, ' ').append(text);
    pass_on(text);
  } else if (std::holds_alternative<BertWordStep>(steps[step])) {
    std::size_t start = 0;
    for (auto word = next_bert_word(text, start); !word.empty(); word = next_bert_word(text, start)) pass_on(word);
  } else if (const auto* signs = std::get_if<BlankSignStep>(&steps[step])) {
    text = with_signs(*signs, text, first, buffer);
    if (!signs->split) return pass_on(text);
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = std::min(text.find(signs->sign, start + 1), text.size());
      pass_on(text.substr(start, end - start));
      start = end;
    }
  }
}

}  // namespace chimera
