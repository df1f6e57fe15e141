#pragma once
// Quotes words for a POSIX shell: for command lines that chimera runs, and for command lines that its messages suggest
// to the user.

#include <string>
#include <vector>

namespace chimera {

/// Returns the word unchanged or, if it is empty or a shell would split or expand it, in single quotes.
[[nodiscard]] std::string shell_word(const std::string& word);

/// Returns the words in one line, each quoted by shell_word(), separated by spaces.
[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);

}  // namespace chimera
