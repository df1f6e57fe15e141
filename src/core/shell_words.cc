#include "core/shell_words.h"

#include <fmt/ranges.h>

#include "core/mapped.h"

namespace chimera {

std::string shell_word(const std::string& word) {
  const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;#~!") == std::string::npos;
  if (is_plain) return word;
  std::string quoted = "'";
  for (const char c : word) {
    // A quote cannot stand within quotes: it ends them, follows with a backslash, and begins them again.
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

std::string shell_words(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(mapped(words, shell_word), " "));
}

}  // namespace chimera
