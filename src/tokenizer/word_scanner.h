#pragma once
// Where the words of a text end, as the patterns of byte-level tokenizers have it. Written by hand: regular expressions
// are slower by an order of magnitude, and each library of them knows other characters.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chimera {

/// A pattern that cuts all of a text into words.
enum class WordPattern : std::uint8_t {
  Gpt2,    ///< 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  Llama3,  ///< blind to case; a character before letters belongs to them; numbers of up to three digits; line ends
           ///< apart
  Qwen2,   ///< Llama 3's, with single digits
};

/// The end of the word that begins at `start` < text.size().
template <WordPattern pattern>
[[nodiscard]] std::size_t word_end(std::string_view text, std::size_t start);
template <>
std::size_t word_end<WordPattern::Gpt2>(std::string_view text, std::size_t start);
template <>
std::size_t word_end<WordPattern::Llama3>(std::string_view text, std::size_t start);
template <>
std::size_t word_end<WordPattern::Qwen2>(std::string_view text, std::size_t start);

}  // namespace chimera
