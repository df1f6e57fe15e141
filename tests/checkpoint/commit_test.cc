// A save is atomic: wherever it is interrupted, the checkpoint is complete or absent, and earlier checkpoints stay.

#include "checkpoint/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/faulty_disk.h"
#include "checkpoint/manifest.h"
#include "checkpoint/sample_checkpoint.h"
#include "checkpoint/shard.h"
#include "support/scratch.h"
#include "support/synced.h"

namespace chimera {
namespace {

using testing::DiskFault;
using ::testing::ElementsAre;
using testing::FaultyDisk;
using ::testing::IsEmpty;
using testing::kSampleRanks;
using testing::read_file;
using testing::save_sample;
using testing::Scratch;

Disk& sound_disk() {
  static FaultyDisk disk;
  return disk;
}

constexpr Retention kNewestOnly{.last = 1, .every = 0};

std::vector<float> read_sample(const Checkpoint& checkpoint) {
  const CheckpointTensors tensors(checkpoint.path, checkpoint.manifest);
  const auto found = tensors.find("rank-1.weight");
  std::vector<float> elements(found->tensor.bytes / sizeof(float));
  found->file->read(found->tensor, 0, std::as_writable_bytes(std::span(elements)));
  return elements;
}

/// Saves a checkpoint with one fault. Returns true if the save completed; the machine may end after it.
bool save_with_fault(FaultyDisk& disk, const std::string& folder, std::int64_t step, int ranks = kSampleRanks) {
  try {
    save_sample(disk, folder, step, kNewestOnly, ranks);
    disk.lose_unsynced();
    return true;
  } catch (const CheckpointError&) {
  } catch (const testing::Killed&) {
  }
  disk.lose_unsynced();
  return false;
}

/// The step of the newest valid checkpoint, whose content is verified; 0 if there is none.
std::int64_t newest_good(const std::string& folder) {
  const NewestCheckpoint newest = newest_checkpoint(folder, 1);
  if (!newest.checkpoint) return 0;
  const std::int64_t step = newest.checkpoint->manifest.step;
  EXPECT_EQ(read_sample(*newest.checkpoint), testing::sample_elements(step));
  return step;
}

// The faulty disk shows where a save has to sync. The real disk must then do it.
TEST(DiskTest, SyncsFilesAndFolders) {
  const Scratch scratch;
  const std::string folder = std::filesystem::canonical(scratch.path("."));
  static_cast<void>(testing::take_synced_paths());
  replace_file(real_disk(), folder, "latest", "text");
  EXPECT_THAT(testing::take_synced_paths(), ElementsAre(folder + "/latest.tmp", folder));
  EXPECT_EQ(read_file(folder + "/latest"), "text");
}

TEST(CommitTest, CheckpointHasTheSavedData) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  save_sample(real_disk(), folder, 10);
  EXPECT_EQ(newest_good(folder), 10);
  EXPECT_EQ(read_file(folder + "/latest"), "step-00000010\n");
  const Manifest manifest = read_manifest(checkpoint_path(folder, 10));
  EXPECT_EQ(manifest.run.at("model").at("layers"), 2);
  std::vector<std::string> names;
  for (const FileEntry& file : manifest.files) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("model-00001-of-00002.safetensors", "optimizer-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors", "optimizer-00002-of-00002.safetensors",
                                 "config.json", "model.safetensors.index.json"));
  const WeightFiles weights(checkpoint_path(folder, 10));
  EXPECT_THAT(weights.names(), ElementsAre("rank-0.weight", "rank-1.weight"));
}

TEST(CommitTest, EveryCallOfASaveMayFail) {
  constexpr int kRanks = 5;  // enough ranks for 500 calls
  FaultyDisk counting;
  {
    const Scratch scratch;
    save_sample(sound_disk(), scratch.path("run"), 10);
    save_sample(counting, scratch.path("run"), 20, kNewestOnly, kRanks);
  }
  ASSERT_GE(counting.calls() * static_cast<int>(std::size(testing::kDiskFaults)), 500);
  for (const DiskFault fault : testing::kDiskFaults) {
    for (int call = 0; call <= counting.calls(); ++call) {
      SCOPED_TRACE("fault " + std::to_string(static_cast<int>(fault)) + " at " + std::to_string(call));
      const Scratch scratch;
      const std::string folder = scratch.path("run");
      save_sample(sound_disk(), folder, 10);
      FaultyDisk disk(fault, call, scratch.path("."));
      const bool saved = save_with_fault(disk, folder, 20, kRanks);
      const std::int64_t found = newest_good(folder);
      ASSERT_TRUE(found == 20 || (found == 10 && !saved));
      ASSERT_EQ(newest_checkpoint(folder, 1).rejected.size(), 0U) << "no checkpoint is damaged";
      const std::string latest = read_file(folder + "/latest");
      ASSERT_TRUE(latest == "step-00000020\n" || (latest == "step-00000010\n" && !saved)) << latest;
      ASSERT_TRUE(found == 20 || latest != "step-00000020\n") << "latest names no checkpoint";
      remove_unfinished(real_disk(), folder);
      save_sample(sound_disk(), folder, 30, kNewestOnly);  // after the disk is repaired
      ASSERT_EQ(newest_good(folder), 30);
      ASSERT_THAT(list_steps(folder), ElementsAre(30));
    }
  }
}

TEST(CommitTest, FirstSaveIsAtomic) {
  for (const DiskFault fault : testing::kDiskFaults) {
    for (int call = 0; call < 120; call += 3) {
      const Scratch scratch;
      FaultyDisk disk(fault, call, scratch.path("."));
      const bool saved = save_with_fault(disk, scratch.path("run"), 20);
      const NewestCheckpoint newest = newest_checkpoint(scratch.path("run"), 1);
      ASSERT_TRUE(newest.checkpoint || !saved) << "fault " << static_cast<int>(fault) << " at " << call;
      ASSERT_THAT(newest.rejected, IsEmpty()) << "fault " << static_cast<int>(fault) << " at " << call;
    }
  }
}

TEST(CommitTest, AnotherSaveOfTheSameStepLosesNothing) {
  for (const DiskFault fault : testing::kDiskFaults) {
    for (int call = 0; call < 80; ++call) {
      const Scratch scratch;
      save_sample(sound_disk(), scratch.path("run"), 20);
      FaultyDisk disk(fault, call, scratch.path("."));
      save_with_fault(disk, scratch.path("run"), 20);
      ASSERT_EQ(newest_good(scratch.path("run")), 20) << "fault " << static_cast<int>(fault) << " at " << call;
    }
  }
}

TEST(CommitTest, ReplacesAnInvalidCheckpointOfTheSameStep) {
  for (const int call : {-1, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50}) {
    const Scratch scratch;
    const std::string folder = scratch.path("run");
    save_sample(sound_disk(), folder, 10);
    save_sample(sound_disk(), folder, 20);
    std::filesystem::resize_file(checkpoint_path(folder, 20) + "/manifest.json", 100);
    ASSERT_EQ(newest_good(folder), 10);
    FaultyDisk disk(DiskFault::LoseNames, call, scratch.path("."));
    const bool saved = save_with_fault(disk, folder, 20);
    ASSERT_EQ(newest_good(folder), saved ? 20 : newest_good(folder));
    ASSERT_NE(newest_good(folder), 0) << call;
  }
}

TEST(CommitTest, AFileInTheWayStays) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("run"));
  const std::string file = scratch.write("run/step-00000001", "of the user");
  EXPECT_THAT([&] { save_sample(sound_disk(), scratch.path("run"), 1); },
              ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("step-00000001: is a file; remove it")));
  EXPECT_EQ(read_file(file), "of the user");
}

TEST(CommitTest, ALinkInTheWayIsReplacedAndItsTargetStays) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("elsewhere"));
  std::filesystem::create_directory(scratch.path("run"));
  const std::string file = scratch.write("elsewhere/manifest.json", "of another run");
  std::filesystem::create_directory_symlink(scratch.path("elsewhere"), scratch.path("run/step-00000001"));
  save_sample(sound_disk(), scratch.path("run"), 1);
  EXPECT_TRUE(newest_checkpoint(scratch.path("run"), 1).checkpoint);
  EXPECT_EQ(read_file(file), "of another run");
}

TEST(CommitTest, AnotherRunsLeftoversAreRemoved) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  static_cast<void>(open_unfinished(real_disk(), folder, 7));
  std::filesystem::create_directory(folder + "/notes.tmp");  // not ours
  remove_unfinished(real_disk(), folder);
  EXPECT_FALSE(std::filesystem::exists(unfinished_path(folder, 7)));
  EXPECT_TRUE(std::filesystem::exists(folder + "/notes.tmp"));
}

}  // namespace
}  // namespace chimera
