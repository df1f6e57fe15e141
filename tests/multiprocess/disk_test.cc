// Disks that fail or are full while a run saves and writes its metrics: it goes on, and so do its files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>

#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// A small file system in memory, for this process and those that it starts, while it lives.
class SmallFileSystem {
 public:
  explicit SmallFileSystem(const std::string& path) : path_(path) {
    std::filesystem::create_directory(path);
    const bool is_own = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    stands_ = is_own && ::mount("none", path.c_str(), "tmpfs", 0, "size=24m") == 0;
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;
  ~SmallFileSystem() {
    if (stands_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  [[nodiscard]] bool stands() const { return stands_; }

 private:
  std::string path_;
  bool stands_ = false;
};

TEST(DiskTest, AFullOneEndsNothingAndFilesGoOnWhenThereIsRoom) {
  const Scratch scratch;
  const SmallFileSystem disk(scratch.path("disk"));
  if (!disk.stands()) GTEST_SKIP() << "needs the right to mount a file system";
  const std::string filler = scratch.path("disk/filler");
  std::ofstream(filler) << std::string(22 << 20, 'x');
  ProgramRun run(small_training(scratch, "disk/metrics.jsonl") +
                 Arguments{"--model", "gpt2-tiny", "--stages", "2", "--steps", "60", "--checkpoint",
                           scratch.path("disk/run"), "--save-every", "2", "--keep", "1", "--flight-record", "none"});
  run.await_message("is not saved");
  std::filesystem::remove(filler);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  const auto unsaved =
      AllOf(HasSubstr("is not saved"), HasSubstr("No space left on device"), EndsWith("; training goes on"));
  EXPECT_THAT(complaints(result), Each(AnyOf(unsaved, HasSubstr("--metrics"))));
  EXPECT_EQ(read_metrics(scratch.path("disk/metrics.jsonl")).size(), 60U);
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch.path("disk/run/step-00000060")}).exit_code, 0);
}

TEST(DiskTest, DataThatVanishesIsNamed) {
  const Scratch scratch;
  const Arguments arguments = small_training(scratch) + Arguments{"--model", "gpt2-tiny", "--stages",    "2",
                                                                  "--steps", "100000",    "--tokenizer", "bytes"};
  ProgramRun run(arguments);
  run.await_message("step 1/");
  std::filesystem::resize_file(scratch.path("text.txt"), 10);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.orphans, 0);
  EXPECT_THAT(complaints(result), Contains(HasSubstr("text.txt has shrunk")));
}

}  // namespace
}  // namespace chimera::testing
