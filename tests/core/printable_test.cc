#include "core/printable.h"

#include <gtest/gtest.h>

namespace chimera {
namespace {

TEST(PrintableTest, KeepsPrintableAscii) { EXPECT_EQ(printable("a 'b' ~"), "a 'b' ~"); }

TEST(PrintableTest, WritesOtherBytesInHexadecimal) {
  EXPECT_EQ(printable("a\n\x1b[31m\xc3\xa4\x7f"), R"(a\x0a\x1b[31m\xc3\xa4\x7f)");
}

TEST(PrintableTest, CutsLongText) {
  EXPECT_EQ(printable("12345", 4), "1234 ...");
  EXPECT_EQ(printable("1234", 4), "1234");
  EXPECT_EQ(printable("12345678901234567890123456789012345678901"), "1234567890123456789012345678901234567890 ...");
}

}  // namespace
}  // namespace chimera
