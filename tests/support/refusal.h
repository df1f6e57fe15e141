#pragma once
// Commands that must fail with a one-line error and no effect.

#include <string>
#include <vector>

#include "support/words.h"

namespace chimera::testing {

struct Refusal {
  Words arguments;
  std::vector<std::string> words;  ///< parts of the message: the problem, its place and the valid values
};

/// Runs the command and expects exit code 2, one line on stderr with all the words, nothing on stdout, no process
/// started and no file created in its working directory.
void expect_refusal(const Refusal& refusal);

/// Invalid numbers.
inline const std::vector<std::string> kNoNumbers = {"", "four", "nan", "inf", "1e30", "1e400", "0x10", "4 ", "1,5"};

}  // namespace chimera::testing
