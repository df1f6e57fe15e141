#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace chimera {
namespace {

// RFC 3720, appendix B.4. The first is the check value that catalogs of CRCs list.
TEST(Crc32cTest, HasThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string ascending;
  for (char byte = 0; byte < 32; ++byte) ascending += byte;
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
}

}  // namespace
}  // namespace chimera
