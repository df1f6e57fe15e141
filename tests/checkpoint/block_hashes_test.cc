#include "checkpoint/block_hashes.h"

#include <gtest/gtest.h>

#include <random>

namespace chimera {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(BlockHashesTest, AreThoseOfXxh128sum) {
  // XXH128_canonicalFromHash(XXH3_128bits(...)) of empty input and of "Chimera".
  EXPECT_EQ(hash128({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128(bytes_of("Chimera")), "f919b41547eb4c7652e7ecf7249c6a64");
}

TEST(BlockHashesTest, AreIndependentOfPieceSizes) {
  std::string file(2 * kHashBlockBytes + 12345, '\0');
  std::minstd_rand random;
  for (char& c : file) c = static_cast<char>(random());
  const auto all = bytes_of(file);
  const std::vector<std::string> expected = {hash128(all.first(kHashBlockBytes)),
                                             hash128(all.subspan(kHashBlockBytes, kHashBlockBytes)),
                                             hash128(all.subspan(2 * kHashBlockBytes))};
  for (const std::size_t piece : {std::size_t{1} << 16, std::size_t{4097}, file.size()}) {
    BlockHasher hasher;
    for (std::size_t at = 0; at < file.size(); at += piece)
      hasher.add(all.subspan(at).first(std::min(piece, all.size() - at)));
    EXPECT_EQ(hasher.finish(), expected);
  }
}

TEST(BlockHashesTest, OneForEachBlockOfTheFile) {
  EXPECT_EQ(BlockHasher().finish().size(), blocks_of(0));
  BlockHasher hasher;
  hasher.add(std::vector<std::byte>(kHashBlockBytes));
  EXPECT_EQ(hasher.finish().size(), blocks_of(kHashBlockBytes));
  EXPECT_EQ(blocks_of(kHashBlockBytes), 1U);
  EXPECT_EQ(blocks_of(kHashBlockBytes + 1), 2U);
  EXPECT_EQ(blocks_of(UINT64_MAX), UINT64_MAX / kHashBlockBytes + 1);
}

}  // namespace
}  // namespace chimera
