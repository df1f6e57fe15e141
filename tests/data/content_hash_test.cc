#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/data_file.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using testing::Scratch;

constexpr std::int64_t kMany = std::int64_t{40} << 30;

class ContentHashTest : public ::testing::Test {
 protected:
  std::uint64_t hash(const std::string& path, std::int64_t samples = 0) {
    return content_hash(DataFile(path), samples, [this] { ++blocks_; });
  }
  /// Makes a sparse file of zeros.
  std::string large(const std::string& name, std::int64_t bytes) {
    const std::string path = scratch_.write(name, "");
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes));
    return path;
  }
  static void put(const std::string& path, std::int64_t offset, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset).put(byte);
  }
  Scratch scratch_;
  int blocks_ = 0;
};

/// Checkpoints of earlier versions hold XXH3_64bits() of the bytes.
TEST_F(ContentHashTest, IsThatOfAllBytes) {
  std::string text((1 << 20) + 1, 'a');
  for (std::size_t i = 0; i < text.size(); i += 4096) text[i] = static_cast<char>('a' + i / 4096 % 23);
  for (const std::size_t size : {std::size_t{1}, std::size_t{64} << 10, text.size()})
    EXPECT_EQ(hash(scratch_.write("a", text.substr(0, size))), XXH3_64bits(text.data(), size));
}

TEST_F(ContentHashTest, SamplesDependOnTheSize) {
  const std::string path = large("a", kMany);
  const std::uint64_t zeros = hash(path, 1000);
  EXPECT_EQ(blocks_, 1000);
  EXPECT_EQ(hash(large("b", kMany), 1000), zeros);
  EXPECT_NE(hash(large("b", kMany + 1), 1000), zeros);
  EXPECT_NE(hash(scratch_.write("c", std::string(1, '\0')), 3), hash(scratch_.write("c", std::string(2, '\0')), 3))
      << "one block";
}

TEST_F(ContentHashTest, SamplesAreSpreadFromTheFirstByteToTheLast) {
  const std::string path = large("a", kMany);
  for (const std::int64_t samples : {1, 2, 3, 1000}) {
    const std::uint64_t zeros = hash(path, samples);
    const std::int64_t last = std::max<std::int64_t>(samples, 2) - 1;
    for (const std::int64_t sample : {std::int64_t{0}, std::int64_t{1}, last / 2, last}) {
      const std::int64_t offset = (kMany - kHashedBlock) * sample / last + sample % kHashedBlock;
      put(path, offset, 'x');
      EXPECT_NE(hash(path, samples), zeros) << samples << " samples, byte " << offset;
      put(path, offset, '\0');
    }
  }
}

}  // namespace
}  // namespace chimera
