#define XXH_INLINE_ALL
#include "data/data_file.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <chrono>
#include <filesystem>

#include "support/scratch.h"

namespace chimera {
namespace {

using testing::Scratch;

/// Counts how often a file is read, with its own cache that keeps every file.
class ContentHashTest : public ::testing::Test {
 protected:
  std::uint64_t hash(const std::string& path) {
    return content_hash(DataFile(path), {scratch_.path("cache/hashes"), 0}, [this](std::int64_t) { ++blocks_read_; });
  }
  Scratch scratch_;
  int blocks_read_ = 0;
};

TEST_F(ContentHashTest, IsThatOfTheWholeFile) {
  const std::string text(40 << 20, 'a');
  EXPECT_EQ(hash(scratch_.write("a", text)), hash(scratch_.write("b", text)));
  EXPECT_EQ(blocks_read_, 2 * 3) << "of 16 MiB";
  EXPECT_NE(hash(scratch_.path("a")), hash(scratch_.write("c", text.substr(0, text.size() - 1) + "b")));
}

/// Blocks are read by several threads. Values of XXH3_64bits(), also those that checkpoints of earlier versions hold.
TEST_F(ContentHashTest, IsXxh3OfTheBytesInTheirOrder) {
  std::string text(50 << 20, 'a');
  for (std::size_t i = 0; i < text.size(); i += 4096) text[i] = static_cast<char>('a' + i / 4096 % 23);
  const std::string path = scratch_.write("a", text);
  std::int64_t last = 0;
  const std::uint64_t found = content_hash(DataFile(path), {}, [&](std::int64_t bytes) {
    EXPECT_GT(bytes, last);
    last = bytes;
  });
  EXPECT_EQ(last, 50 << 20);
  EXPECT_EQ(found, XXH3_64bits(text.data(), text.size()));
}

TEST_F(ContentHashTest, AFileIsReadOnce) {
  const std::string path = scratch_.write("a", "text");
  const std::uint64_t first = hash(path);
  EXPECT_EQ(hash(path), first);
  EXPECT_EQ(blocks_read_, 1);
}

TEST_F(ContentHashTest, AFileThatChangedIsReadAgain) {
  const std::string path = scratch_.write("a", "text");
  const std::uint64_t first = hash(path);
  static_cast<void>(scratch_.write("a", "TEXT"));
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(hash(path), first);
  EXPECT_EQ(blocks_read_, 2);
}

TEST_F(ContentHashTest, AFileThatChangedWithItsTimePutBackIsReadAgain) {
  const std::string path = scratch_.write("a", "text");
  const auto time = std::filesystem::last_write_time(path);
  const std::uint64_t first = hash(path);
  static_cast<void>(scratch_.write("a", "TEXT"));
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(hash(path), first);
  EXPECT_EQ(blocks_read_, 2);
}

TEST_F(ContentHashTest, InvalidCachedHashCountsAsMissing) {
  const std::string path = scratch_.write("a", "text");
  const std::uint64_t first = hash(path);
  for (const auto& kept : std::filesystem::directory_iterator(scratch_.path("cache/hashes"))) {
    for (const char* wrong : {"", "123", "zzzzzzzzzzzzzzzz", "00000000000000000"}) {
      static_cast<void>(scratch_.write("cache/hashes/" + kept.path().filename().string(), wrong));
      EXPECT_EQ(hash(path), first) << wrong;
    }
  }
  EXPECT_EQ(blocks_read_, 5);
}

TEST_F(ContentHashTest, UnwritableCacheIsNotAnError) {
  const std::string path = scratch_.write("a", "text");
  int blocks = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(content_hash(DataFile(path), {path + "/no folder", 0}, [&](std::int64_t) { ++blocks; }), hash(path));
  }
  EXPECT_EQ(blocks, 2);
}

TEST_F(ContentHashTest, SmallFilesAreReadEachTime) {
  const std::string path = scratch_.write("a", "text");
  for (int i = 0; i < 2; ++i) {
    static_cast<void>(content_hash(DataFile(path), {scratch_.path("other")}, [this](std::int64_t) { ++blocks_read_; }));
  }
  EXPECT_EQ(blocks_read_, 2);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("other")));
}

}  // namespace
}  // namespace chimera
