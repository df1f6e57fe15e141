// Disks that fail, are full or slow while a run saves and writes metrics: the run continues, and its files stay valid.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>

#include "multiprocess/training.h"
#include "support/refusal.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;

/// A small tmpfs mounted for this process and its children.
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
  /// Returns false if a file is open for writing: the kernel then refuses to make the file system read-only.
  [[nodiscard]] bool is_made_read_only() const { return remount(MS_RDONLY) == 0; }
  void make_writable() const { ASSERT_EQ(remount(0), 0); }

 private:
  [[nodiscard]] int remount(unsigned long flags) const {
    return ::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT | flags, "size=24m");
  }

  std::string path_;
  bool stands_ = false;
};

class DiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.stands()) GTEST_SKIP() << "needs the right to mount a file system";
  }
  void fill() const { std::ofstream(filler_) << std::string(24 << 20, 'x'); }
  void make_room() const { std::filesystem::remove(filler_); }

  Scratch scratch_;
  SmallFileSystem disk_{scratch_.path("disk")};
  std::string filler_ = scratch_.path("disk/filler");
};

/// A run on two ranks that saves in the folder `run` of the disk.
Words saving_training(const Scratch& scratch, const std::string& steps, const std::string& save_every,
                      const std::string& metrics = "metrics.jsonl") {
  return small_training(scratch, metrics) +
         split("--model gpt2-tiny --stages 2 --steps {} --keep 1 --save-every {} --checkpoint {} --flight-record none",
               steps, save_every, scratch.path("disk/run"));
}

/// Steps of the existing checkpoints.
std::vector<int> saved_steps(const Scratch& scratch) {
  std::vector<int> steps;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("disk/run"))) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-") && !name.ends_with(".tmp")) steps.push_back(std::stoi(name.substr(5)));
  }
  return steps;
}

TEST_F(DiskTest, FullDiskDoesNotEndTheRunAndFilesContinue) {
  ProgramRun run(saving_training(scratch_, "1000000", "2", "disk/metrics.jsonl"));
  run.await_message("step 1/");
  fill();
  run.await_message("is not saved");
  make_room();
  run.send(run.process(), SIGTERM);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 75) << result.messages;
  const auto unsaved =
      AllOf(HasSubstr("is not saved"), HasSubstr("No space left on device"), EndsWith("; training continues"));
  EXPECT_THAT(complaints(result), Each(AnyOf(unsaved, HasSubstr("--metrics"), HasSubstr("ended by a signal"),
                                             HasSubstr("saves after this step"), HasSubstr("is tried again in"))));
  const auto steps = read_metrics(scratch_.path("disk/metrics.jsonl"));
  EXPECT_EQ(steps.back().at("step"), steps.size());
  EXPECT_EQ(saved_steps(scratch_).back(), steps.back().at("step"));
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch_.path("disk/run")}).exit_code, 0);
}

TEST_F(DiskTest, ADiskWithoutRoomForACheckpointIsRefusedAtTheStart) {
  fill();
  const Words flags = saving_training(scratch_, "4", "2");
  for (const Words more : {"", "--dry-run"})
    expect_refusal({flags + more, {"--checkpoint " + scratch_.path("disk/run") + ": a checkpoint needs ", "are free"}});
  make_room();
  const ProgramResult many = succeeded(run_program(saving_training(scratch_, "1000", "1") + "--keep 1000 --dry-run"));
  EXPECT_THAT(many.messages, HasSubstr("checkpoints of "));
  EXPECT_THAT(many.messages, HasSubstr("give a lower --keep"));
}

TEST_F(DiskTest, TheLastSaveIsTriedAgain) {
  ProgramRun run(saving_training(scratch_, "1000000", "100000000"));
  run.await_message("step 1/");
  fill();
  run.send(run.process(), SIGTERM);
  run.await_message("is tried again");
  make_room();
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 75) << result.messages;
  EXPECT_THAT(saved_steps(scratch_), SizeIs(1));
}

TEST_F(DiskTest, ReadOnlyDiskDoesNotEndTheRun) {
  ProgramRun run(saving_training(scratch_, "100000", "20"));
  run.await_message("step 1/");
  while (saved_steps(scratch_).empty()) run.watch_for(std::chrono::milliseconds(1));
  while (!disk_.is_made_read_only()) run.watch_for(std::chrono::milliseconds(1));
  run.await_message("is not saved");
  EXPECT_THAT(saved_steps(scratch_), Not(IsEmpty()));
  disk_.make_writable();
  run.send(run.process(), SIGTERM);
  const ProgramResult result = run.wait();
  EXPECT_EQ(result.exit_code, 75) << result.messages;
  EXPECT_THAT(result.messages, HasSubstr("Read-only file system); training continues"));
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch_.path("disk/run")}).exit_code, 0);
}

TEST_F(DiskTest, FailedSaveIsRetriedBeforeTheNext) {
  ProgramRun run(saving_training(scratch_, "1000000", "1000"));
  run.await_message("step 1/");
  fill();
  run.await_message("is not saved");
  make_room();
  while (saved_steps(scratch_).empty()) run.watch_for(std::chrono::milliseconds(1));
  EXPECT_THAT(saved_steps(scratch_), ElementsAre(AllOf(Gt(1000), Lt(2000))));
  run.send(run.process(), SIGTERM);
  EXPECT_EQ(run.wait().exit_code, 75);
}

TEST(DiskFaultTest, SlowDiskDelaysNoStep) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("disk"));
  ProgramRun run(saving_training(scratch, "200", "2") + "--keep-every 1",
                 {.environment = {"LD_PRELOAD=" CHIMERA_SLOW_DISK, "SLOW_DISK_SECONDS=0.1"}});
  const ProgramResult result = succeeded(run.wait());
  EXPECT_THAT(complaints(result), IsEmpty());
  // Syncing the files of a save takes longer than some steps. If steps waited for it, all 100 checkpoints would exist.
  EXPECT_THAT(saved_steps(scratch), AllOf(Contains(200), SizeIs(Lt(67))));
  EXPECT_EQ(run_program({"checkpoint", "verify", scratch.path("disk/run")}).exit_code, 0);
}

TEST(DiskFaultTest, NamesMissingData) {
  const Scratch scratch;
  const Words arguments = small_training(scratch) + "--model gpt2-tiny --stages 2 --steps 100000 --tokenizer bytes";
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
