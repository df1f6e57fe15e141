#pragma once

// Cuts a text into words, which models encode one by one. The steps of a file apply in order, each to the words of the
// step before. The patterns of GPT-2, Llama 3 and Qwen 2 are written as code: regular expressions would be ten times
// slower, and have other versions of Unicode.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace chimera {

enum class WordPattern : std::uint8_t {
  Gpt2,    ///< 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  Llama3,  ///< ignores case; a character before letters belongs to them; up to three digits; separate line ends
  Qwen2,   ///< as Llama3, with single digits
};

/// Returns the end of the word that starts at `start`.
[[nodiscard]] std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t start);

struct WordStep {
  WordPattern pattern = WordPattern::Gpt2;
};
struct DigitStep {  ///< separates numbers, or single digits
  bool individual = false;
};
struct BlankStep {};     ///< adds a blank unless the text starts with one
struct BertWordStep {};  ///< splits at white space, and separates punctuation
struct BlankSignStep {   ///< Metaspace: a sign for blanks starts a word
  enum class Prepend { Always, First, Never };
  std::string sign = "\u2581";
  Prepend prepend = Prepend::Always;  ///< First: only at the start of the text
  bool split = true;
};
using WordsStep = std::variant<WordStep, DigitStep, BlankStep, BertWordStep, BlankSignStep>;

using WordBuffers = std::array<std::string, 4>;

/// Steps in their order, at most as many as there are buffers.
using PreTokenizer = std::vector<WordsStep>;

/// Returns the end of the run of digits or non-digits.
[[nodiscard]] std::size_t end_of_digits(std::string_view text, std::size_t start, bool individual);
/// Returns BERT's next word, empty at the end, and moves `start`.
[[nodiscard]] std::string_view next_bert_word(std::string_view text, std::size_t& start);
/// Returns the text with signs for blanks.
[[nodiscard]] std::string_view with_signs(const BlankSignStep& step, std::string_view text, bool first,
                                          std::string& buffer);

template <class Take>
void split_words(WordPattern pattern, std::string_view text, const Take& take) {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = word_end(pattern, text, start);
    take(text.substr(start, end - start));
    start = end;
  }
}

/// Calls `take(word)` for each non-empty word of the steps from `step` on. `first`: no text precedes this one.
/// `buffers` must outlive the words.
template <class Take>
void split(const PreTokenizer& steps, std::string_view text, bool first, WordBuffers& buffers, const Take& take,
           std::size_t step = 0) {
  if (text.empty()) return;
  if (step == steps.size()) return take(text);
  const auto pass_on = [&](std::string_view word) {
    split(steps, word, first && word.data() == text.data(), buffers, take, step + 1);
  };
  std::string& buffer = buffers[step];
  if (const auto* words = std::get_if<WordStep>(&steps[step])) {
    if (step + 1 == steps.size()) return split_words(words->pattern, text, take);
    return split_words(words->pattern, text, pass_on);
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
    for (auto word = next_bert_word(text, start); !word.empty(); word = next_bert_word(text, start)) {
      pass_on(word);
    }
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
