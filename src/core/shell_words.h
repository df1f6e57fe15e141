#pragma once
// Command lines for a POSIX shell: lines that the program runs, and lines that its messages suggest to the user. A path
// may contain blanks and quotes, so that each word of a line goes through these functions.

#include <string>
#include <vector>

namespace chimera {

/// Returns the word as it is or, if a shell would change it, in single quotes.
[[nodiscard]] std::string shell_word(const std::string& word);

/// Returns the words in one line, separated by spaces.
[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);

}  // namespace chimera
