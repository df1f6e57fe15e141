#include "checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/sample_checkpoint.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Scratch;

TEST(CheckpointFolderTest, NamesAndStepsBelongTogether) {
  EXPECT_EQ(checkpoint_name(100), "step-00000100");
  EXPECT_EQ(checkpoint_name(1234567890), "step-1234567890");
  for (const std::int64_t step : {0L, 7L, 99999999L, 100000000L}) EXPECT_EQ(step_of_name(checkpoint_name(step)), step);
  for (const char* name :
       {"step-100", "step-0000010a", "step-00000100.tmp", "step-000000100", "step--0000100", "latest"}) {
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
  }
}

TEST(CheckpointFolderTest, ListsCheckpointsByName) {
  const Scratch scratch;
  for (const char* name : {"step-00000020", "step-00000003", "step-00000030.tmp", "other"})
    std::filesystem::create_directory(scratch.path(name));
  static_cast<void>(scratch.write("step-00000004", "a file"));
  std::filesystem::create_directory_symlink(scratch.path("step-00000020"), scratch.path("step-00000005"));
  std::filesystem::create_symlink(scratch.path("absent"), scratch.path("step-00000006"));
  EXPECT_THAT(list_steps(scratch.path("")), ElementsAre(3, 5, 20));
  EXPECT_THAT(list_steps(scratch.path("none")), IsEmpty());
}

TEST(CheckpointFolderTest, KeepsTheNewestAndEveryMultiple) {
  const std::vector<std::int64_t> steps = {10, 20, 30, 40, 50, 60};
  EXPECT_THAT(find_expired_steps(steps, {.last = 2, .every = 0}), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(find_expired_steps(steps, {.last = 2, .every = 30}), ElementsAre(10, 20, 40));
  EXPECT_THAT(find_expired_steps({4, 9, 13, 18, 22, 26, 31}, {.last = 1, .every = 10}), ElementsAre(4, 9, 18, 26))
      << "saves that slip";
  EXPECT_THAT(find_expired_steps(steps, {.last = 9, .every = 0}), IsEmpty());
  EXPECT_THAT(find_expired_steps({}, {.last = 1, .every = 0}), IsEmpty());
}

TEST(CheckpointFolderTest, KeepsCheckpointsNewerThanTheCommitted) {
  const Scratch scratch;
  for (const std::int64_t step : {10, 20, 30})
    std::filesystem::create_directory(checkpoint_path(scratch.path(""), step));
  remove_expired(real_disk(), scratch.path(""), 20, {.last = 1, .every = 0});
  EXPECT_THAT(list_steps(scratch.path("")), ElementsAre(20, 30));
}

TEST(CheckpointFolderTest, RemovesNoLinks) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("elsewhere"));
  static_cast<void>(scratch.write("elsewhere/manifest.json", "of another run"));
  std::filesystem::create_directory_symlink(scratch.path("elsewhere"), scratch.path("step-00000010"));
  std::filesystem::create_directory_symlink(scratch.path("elsewhere"), scratch.path("step-00000015.tmp"));
  for (const std::int64_t step : {20, 30}) std::filesystem::create_directory(checkpoint_path(scratch.path(""), step));
  remove_expired(real_disk(), scratch.path(""), 30, {.last = 1, .every = 0});
  EXPECT_THAT(list_steps(scratch.path("")), ElementsAre(10, 30));
  remove_unfinished(real_disk(), scratch.path(""));
  remove_with_files(real_disk(), scratch.path("step-00000010"));
  EXPECT_THAT(list_steps(scratch.path("")), ElementsAre(30));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("step-00000015.tmp")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("elsewhere/manifest.json")));
}

TEST(CheckpointFolderTest, ARemovedCheckpointIsReplacedByANewerOne) {
  const Scratch scratch;
  const std::string run = scratch.path("run");
  testing::save_sample(real_disk(), run, 10);
  std::vector<std::string> used;
  const auto fail = [] { throw ConfigError("cannot be read"); };
  use_model_folder(run, 1, [&](const std::string& folder) {
    used.push_back(folder);
    if (used.size() > 1) return;
    testing::save_sample(real_disk(), run, 20);
    remove_expired(real_disk(), run, 20, {.last = 1, .every = 0});
    fail();
  });
  EXPECT_THAT(used, ElementsAre(run + "/step-00000010", run + "/step-00000020"));
  EXPECT_THROW(use_model_folder(run, 1, [&](const std::string&) { fail(); }), ConfigError) << "the checkpoint exists";
}

TEST(CheckpointFolderTest, ItsFilesNameACheckpoint) {
  const Scratch scratch;
  for (const std::int64_t step : {10, 20}) testing::save_sample(real_disk(), scratch.path("run"), step);
  const auto step_of = [&](const char* path) {
    return find_checkpoint(scratch.path(path), 1).checkpoint->manifest.step;
  };
  EXPECT_EQ(step_of("run/latest"), 20);
  EXPECT_EQ(step_of("run/latest/manifest.json"), 20) << "latest is a file";
  EXPECT_EQ(step_of("run/step-00000010/manifest.json"), 10);
  EXPECT_EQ(resolve_model_folder(scratch.path("run/latest"), 1), scratch.path("run/step-00000020"));
}

TEST(CheckpointFolderTest, SaysWhichNamesAreNoCheckpoints) {
  const Scratch scratch;
  static_cast<void>(scratch.write("step-00000010", "a file"));
  std::filesystem::create_symlink(scratch.path("absent"), scratch.path("step-00000020"));
  const NewestCheckpoint newest = newest_checkpoint(scratch.path("."), 0);
  EXPECT_FALSE(newest.checkpoint);
  EXPECT_THAT(newest.rejected,
              ::testing::UnorderedElementsAre(scratch.path("./step-00000010") + ": is not the folder of a checkpoint",
                                              scratch.path("./step-00000020") + ": is not the folder of a checkpoint"));
}

}  // namespace
}  // namespace chimera
