#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/unicode.h"

namespace chimera::pre_tokenizer_detail {
namespace {

bool has_class(char32_t c, unsigned classes) { return (character_table()[c] & classes) != 0; }

}  // namespace

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
  const bool wants =
      step.prepend == BlankSignStep::Prepend::Always || (step.prepend == BlankSignStep::Prepend::First && first);
  if (wants && text.front() != ' ' && !text.starts_with(step.sign)) buffer += step.sign;
  std::size_t start = 0;
  for (std::size_t blank = text.find(' '); blank != text.npos; blank = text.find(' ', start)) {
    buffer.append(text.substr(start, blank - start)).append(step.sign);
    start = blank + 1;
  }
  return buffer.append(text.substr(start));
}

}  // namespace chimera::pre_tokenizer_detail
