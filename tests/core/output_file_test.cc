#include "core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/error.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;
using ::testing::ThrowsMessage;

std::size_t files_in(const Scratch& scratch) {
  const auto files = std::filesystem::directory_iterator(scratch.path(""));
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(OutputFileTest, ReplacesTheOldContent) {
  const Scratch scratch;
  const std::string path = scratch.write("plan.json", "old");
  require_writable_whole(path);
  EXPECT_EQ(read_file(path), "old");
  write_whole(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(files_in(scratch), 1U);
}

TEST(OutputFileTest, LeavesOtherFilesAlone) {
  const Scratch scratch;
  const std::string path = scratch.path("plan.json");
  const std::string neighbor = scratch.write("plan.json.unfinished", "a user's own");
  require_writable_whole(path);
  EXPECT_EQ(read_file(neighbor), "a user's own");
  write_whole(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(read_file(neighbor), "a user's own");
  EXPECT_EQ(files_in(scratch), 2U);
}

TEST(OutputFileTest, HasThePermissionsOfAnyNewFile) {
  const Scratch scratch;
  const std::string path = scratch.path("new");
  write_whole(path, "text");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat status {};
  ::stat(path.c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777U, 0666U & ~mask);
}

TEST(OutputFileTest, RefusesWhatCannotBeWritten) {
  const Scratch scratch;
  const auto refusal = [](const char* reason) { return ThrowsMessage<ConfigError>(HasSubstr(reason)); };
  EXPECT_THAT([&] { require_writable_whole(scratch.path("")); }, refusal("Is a directory"));
  EXPECT_THAT([&] { write_whole("/dev/full", "text"); }, ThrowsMessage<Error>(HasSubstr("No space left on device")));
  EXPECT_EQ(files_in(scratch), 0U);
  const std::string file = scratch.write("file", "text");
  EXPECT_THAT([&] { require_writable_whole(file + "/other"); }, refusal("Not a directory"));
  EXPECT_THAT([&] { write_whole(file + "/other", "text"); }, refusal("Not a directory"));
  EXPECT_EQ(read_file(file), "text");
}

TEST(OutputFileTest, MakesParentFolders) {
  const Scratch scratch;
  const std::string path = scratch.path("a/b/file");
  require_writable_whole(path);
  EXPECT_EQ(files_in(scratch), 0U) << "a check makes nothing";
  write_whole(path, "text");
  EXPECT_EQ(read_file(path), "text");
}

TEST(OutputFileTest, ExistingContentIsLostOnlyOnRequest) {
  const Scratch scratch;
  const std::string path = scratch.write("file", "text");
  EXPECT_THAT([&] { require_unused("--output", path, false); },
              ThrowsMessage<ConfigError>("--output " + path + ": exists already; give another file, or --overwrite"));
  EXPECT_NO_THROW(require_unused("--output", path, true));
  EXPECT_NO_THROW(require_unused("--output", scratch.write("empty", ""), false));
  EXPECT_NO_THROW(require_unused("--output", "/dev/null", false));
}

TEST(OutputFileTest, NamesOfOneFileAreTheSame) {
  const Scratch scratch;
  const std::string path = scratch.write("file", "text");
  std::filesystem::create_symlink(path, scratch.path("link"));
  EXPECT_TRUE(is_same_file(path, scratch.path("link")));
  EXPECT_TRUE(is_same_file(scratch.path("absent"), scratch.path("./absent")));
  EXPECT_TRUE(is_same_file("absent", "./absent"));
  EXPECT_FALSE(is_same_file(path, scratch.path("other")));
}

TEST(OutputFileTest, WritesToNonRegularFiles) {
  require_writable_whole("/dev/null");
  write_whole("/dev/null", "text");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace chimera
