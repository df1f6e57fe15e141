#pragma once
// Commands that must be refused: one line that says what is wrong, and nothing done.

#include <string>
#include <vector>

namespace chimera::testing {

struct Refusal {
  std::vector<std::string> arguments;
  std::vector<std::string> words;  ///< parts of the message: what, where, what would be right
};

/// Runs the command: exit code 2, one line on stderr with all the words, nothing on stdout, no process started and no
/// file made in its working directory.
void expect_refusal(const Refusal& refusal);

/// Texts that are no number.
inline const std::vector<std::string> kNoNumbers = {"", "four", "nan", "inf", "1e30", "1e400", "0x10", "4 ", "1,5"};

}  // namespace chimera::testing
