#include "core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "support/message_of.h"

namespace chimera {
namespace {

std::string refusal_of(const std::string& path, std::size_t most) {
  return testing::message_of([&] { (void)read_whole(path, most); });
}

TEST(InputFileTest, ReadsAtMostItsLimit) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / "chimera_input_file_test";
  std::ofstream(path) << std::string(100'000, 'x');
  EXPECT_EQ(read_whole(path, 100'000), std::string(100'000, 'x'));
  EXPECT_EQ(refusal_of(path, 99'999), path + ": is longer than 99999 bytes; give a file of at most as many");
  std::filesystem::remove(path);
  EXPECT_EQ(read_whole("/dev/null"), "");
}

TEST(InputFileTest, RefusesAnEndlessFile) {
  EXPECT_THAT(refusal_of("/dev/zero", 1 << 20), ::testing::HasSubstr("/dev/zero: is longer than 1048576 bytes"));
}

TEST(InputFileTest, SaysWhyItCannotRead) {
  EXPECT_THAT(refusal_of("/nowhere/at/all", 1), ::testing::HasSubstr("cannot be read (No such file or directory)"));
  EXPECT_THAT(refusal_of("/", 1), ::testing::HasSubstr("is a directory"));
}

}  // namespace
}  // namespace chimera
