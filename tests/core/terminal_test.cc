#include "core/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>

#include <cstdlib>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {
namespace {

class TerminalTest : public ::testing::Test {
 protected:
  TerminalTest() {
    int ends[2] = {-1, -1};
    const winsize size{.ws_row = 24, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::openpty(&ends[0], &ends[1], nullptr, nullptr, &size), 0);
    reader_ = FileDescriptor(ends[0]);
    terminal_ = FileDescriptor(ends[1]);
    if (const char* given = std::getenv("TERM")) given_ = given;
  }
  ~TerminalTest() override { ::setenv("TERM", given_.c_str(), 1); }

  FileDescriptor reader_;
  FileDescriptor terminal_;
  std::string given_;
};

TEST_F(TerminalTest, DumbTerminalsTakeNoEscapes) {
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(supports_escapes(terminal_.get()));
  for (const char* name : {"dumb", ""}) {
    ::setenv("TERM", name, 1);
    EXPECT_FALSE(supports_escapes(terminal_.get())) << name;
  }
  ::unsetenv("TERM");
  EXPECT_FALSE(supports_escapes(terminal_.get()));
  ::setenv("TERM", "xterm", 1);
  EXPECT_FALSE(supports_escapes(-1));
}

TEST_F(TerminalTest, TheWidthIsZeroWithoutATerminal) {
  EXPECT_EQ(terminal_columns(terminal_.get()), 20);
  EXPECT_EQ(terminal_columns(-1), 0);
}

TEST(ClippedTest, CutsEachLineBetweenCharacters) {
  EXPECT_EQ(clip_lines("step 1\nséance\n\nab", 3), "ste\nséa\n\nab");
  EXPECT_EQ(clip_lines("███", 2), "██");
  EXPECT_EQ(clip_lines("step 1", 0), "step 1");
  EXPECT_EQ(clip_lines("", 3), "");
}

}  // namespace
}  // namespace chimera
