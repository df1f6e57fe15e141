#include "refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace chimera::testing {
void expect_refusal(const Refusal& refusal) {
  std::string command = "chimera";
  for (const std::string& argument : refusal.arguments) command += argument.empty() ? " ''" : " " + argument;
  SCOPED_TRACE(command);
  const ProgramResult result =
      ProgramRun(refusal.arguments,
                 {.ranks = 0, .deadline = kPatience / 6, .is_copy = needs_training_half(refusal.arguments)})
          .wait();
  EXPECT_EQ(result.exit_code, 2) << "killed by signal " << result.killed_by;
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.orphans, 0);
  EXPECT_FALSE(result.left_files);
  EXPECT_EQ(lines_of(result.messages).size(), 1U) << result.messages;
  EXPECT_TRUE(result.messages.starts_with("chimera: ")) << result.messages;
  for (const std::string& words : refusal.words) EXPECT_THAT(result.messages, ::testing::HasSubstr(words));
}

}  // namespace chimera::testing
