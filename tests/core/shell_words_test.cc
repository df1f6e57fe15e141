#include "core/shell_words.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace chimera {
namespace {

/// What a shell makes of a line: its words, each with a line end.
std::string words_of_shell(const std::string& line) {
  std::FILE* shell = ::popen(("printf '%s\\n' " + line).c_str(), "r");
  std::string words;
  for (int c = std::fgetc(shell); c != EOF; c = std::fgetc(shell)) words += static_cast<char>(c);
  ::pclose(shell);
  return words;
}

TEST(ShellWordsTest, QuotesOnlyWhatAShellWouldChange) {
  EXPECT_EQ(shell_word("run/step-00000100"), "run/step-00000100");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's $x"), "'it'\\''s $x'");
}

TEST(ShellWordsTest, AShellReadsTheSameWords) {
  EXPECT_EQ(words_of_shell(shell_words({"my run", "it's", "$HOME", "a*", "", "x;y", "~", "b\\c"})),
            "my run\nit's\n$HOME\na*\n\nx;y\n~\nb\\c\n");
}

}  // namespace
}  // namespace chimera
