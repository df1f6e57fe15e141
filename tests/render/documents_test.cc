// The pictures in the documents are those of the golden files.

#include <gtest/gtest.h>

#include "support/schedules.h"

namespace chimera {
namespace {

std::string document(const std::string& path) { return testing::golden("../../" + path); }

TEST(DocumentsTest, ReadmeAndScheduleListShowTheGoldenPicture) {
  const std::string fenced = "```\n" + testing::golden("chimera.txt") + "```\n";
  EXPECT_NE(document("README.md").find(fenced), std::string::npos);
  EXPECT_NE(document("docs/schedules.md").find(fenced), std::string::npos);
}

}  // namespace
}  // namespace chimera
