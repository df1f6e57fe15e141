#include "render/text_table.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

constexpr const char* kTable =
    "name   makespan  bubble  peak\n"
    "1f1b         24   0.3 %     4\n"
    "a v          25  12.0 %     8\n";

TEST(TextTableTest, LinesThatFitStay) {
  EXPECT_EQ(fitted(kTable, 0), kTable);
  EXPECT_EQ(fitted(kTable, 29), kTable);
  EXPECT_EQ(fitted("", 10), "");
}

TEST(TextTableTest, ColumnsThatDoNotFitFollowBesideTheFirst) {
  EXPECT_EQ(fitted(std::string("two rows:\n\n") + kTable + "best: a sentence that is too long for it\n", 24),
            "two rows:\n\n"
            "name   makespan  bubble\n"
            "1f1b         24   0.3 %\n"
            "a v          25  12.0 %\n"
            "\n"
            "name   peak\n"
            "1f1b      4\n"
            "a v       8\n"
            "best: a sentence that is\n"
            "    too long for it\n");
}

TEST(TextTableTest, ASentenceBehindATableIsNoRow) {
  EXPECT_EQ(fitted("name  a\nx     1\na sentence that is long\n", 12),
            "name  a\nx     1\na sentence\n    that is\n    long\n");
}

/// The last columns are behind the end of the sentence.
TEST(TextTableTest, AShortSentenceBehindATableIsNoRow) {
  EXPECT_EQ(fitted("name  a  b    c\nx     1  2  345\nshort words\n", 12),
            "name  a  b\nx     1  2\n\nname    c\nx     345\nshort words\n");
}

TEST(TextTableTest, AColumnThatIsTooWideIsBroken) {
  EXPECT_EQ(fitted("name  source\na     Narayanan et al.\nb     Qi\n", 16),
            "name  source\na     Narayanan\n      et al.\nb     Qi\n");
}

TEST(TextTableTest, WordsAreNotBrokenAndCharactersCounted) {
  EXPECT_EQ(fitted("/a/path/without/blanks\n", 10), "/a/path/without/blanks\n");
  EXPECT_EQ(fitted("\u2588\u2588\u2588 \u2588\u2588\n", 6), "\u2588\u2588\u2588 \u2588\u2588\n");
}

}  // namespace
}  // namespace chimera
