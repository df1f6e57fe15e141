#include "hugging_face/staged_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "checkpoint/faulty_disk.h"
#include "core/error.h"
#include "safetensors/weight_files.h"
#include "support/message_of.h"
#include "support/scratch.h"
#include "support/synced.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;

std::string folder_refusal_of(const std::string& folder, std::uint64_t bytes = 0) {
  return testing::message_of([&] { require_new_folder(folder, bytes); });
}

/// Writes two files of weights, as two ranks do, and a text.
void fill(const StagedFolder& staged, Disk& disk) {
  const ExportPlan plan = plan_export(
      {{.name = "a", .type = ElementType::U8, .shape = {3}}, {.name = "b", .type = ElementType::U8, .shape = {2}}}, 3);
  staged.make_weights(plan);
  staged.write("config.json", "{}");
  for (const ExportFile& file : plan.files) {
    PartWriter writer(staged.path() + "/" + file.name, disk);
    for (const TensorEntry& tensor : file.layout.tensors) {
      const std::string text(tensor.bytes, tensor.name[0]);
      writer.write(tensor.begin, std::as_bytes(std::span(text)));
    }
    writer.finish();
  }
}

TEST(StagedFolderTest, AppearsAtomically) {
  const Scratch scratch;
  const std::string folder = scratch.path("out");
  StagedFolder staged(folder + "/");
  EXPECT_EQ(staged.path(), StagedFolder::path_of(folder, staged.number()));
  fill(staged, real_disk());
  EXPECT_FALSE(std::filesystem::exists(folder));
  staged.commit();
  EXPECT_EQ(read_file(folder + "/config.json"), "{}");
  const WeightFiles files(folder);
  for (const char* name : {"a", "b"}) {
    const auto found = files.find(name).value();
    std::string text(found.tensor.bytes, ' ');
    found.file->read(found.tensor, 0, std::as_writable_bytes(std::span(text)));
    EXPECT_EQ(text, std::string(text.size(), name[0]));
  }
}

TEST(StagedFolderTest, CreatesMissingParents) {
  const Scratch scratch;
  const std::string folder = scratch.path("models/new/out");
  EXPECT_EQ(folder_refusal_of(folder + "/"), "");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("models"))) << "the check creates nothing";
  StagedFolder staged(folder);
  staged.write("config.json", "{}");
  staged.commit();
  EXPECT_EQ(read_file(folder + "/config.json"), "{}");
}

TEST(StagedFolderTest, IsOnTheDiskBeforeItHasItsName) {
  const Scratch scratch;
  const std::string root = std::filesystem::canonical(scratch.path("."));
  static_cast<void>(testing::take_synced_paths());
  StagedFolder staged(root + "/new/models/out");
  EXPECT_THAT(testing::take_synced_paths(), ::testing::UnorderedElementsAre(root, root + "/new"));
  staged.write("config.json", "{}");
  EXPECT_THAT(testing::take_synced_paths(), ::testing::ElementsAre(staged.path() + "/config.json"));
  staged.commit();
  EXPECT_THAT(testing::take_synced_paths(), ::testing::ElementsAre(staged.path(), root + "/new/models"));
}

TEST(StagedFolderTest, EveryCallOfAnExportMayFail) {
  const auto export_to = [](const std::string& folder, Disk& disk) {
    StagedFolder staged(folder, disk);
    fill(staged, disk);
    staged.commit();
  };
  const auto content = [](const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files[entry.path().filename()] = read_file(entry.path());
    return files;
  };
  const Scratch first;
  testing::FaultyDisk counting;
  export_to(first.path("out"), counting);
  const auto whole = content(first.path("out"));
  ASSERT_EQ(whole.size(), 4U);
  const int calls = counting.calls();
  for (const testing::DiskFault fault : testing::kDiskFaults) {
    for (int call = 0; call <= calls; ++call) {
      SCOPED_TRACE("fault " + std::to_string(static_cast<int>(fault)) + " at " + std::to_string(call));
      const Scratch scratch;
      const std::string folder = scratch.path("out");
      testing::FaultyDisk disk(fault, call, scratch.path("."));
      bool may_be_lost = true;
      try {
        export_to(folder, disk);
        may_be_lost = false;
      } catch (const CheckpointError&) {
      } catch (const testing::Killed&) {
      }
      disk.lose_unsynced();
      if (may_be_lost && !std::filesystem::exists(folder)) export_to(folder, counting);  // Removes what is left
      ASSERT_EQ(content(folder), whole);
    }
  }
}

TEST(StagedFolderTest, IsInNoCheckpoint) {
  const Scratch scratch;
  const std::string step = scratch.path("run/step-00000002");
  std::filesystem::create_directories(step);
  EXPECT_EQ(folder_refusal_of(step + "/out"), "") << "no checkpoint";
  scratch.write("run/step-00000002/manifest.json", "{}");
  scratch.write("run/latest", "step-00000002\n");
  for (const char* inside : {"/out", "/new/out"})
    EXPECT_THAT(folder_refusal_of(step + inside), HasSubstr(": is in the checkpoint " + step + "; give a folder"));
  for (const char* name : {"step-00000004", "step-00000004.tmp", "step-00000006/out"})
    EXPECT_THAT(folder_refusal_of(scratch.path("run/") + name), HasSubstr("is a name for checkpoints of the run "));
  EXPECT_EQ(folder_refusal_of(scratch.path("run/model")), "");
  EXPECT_EQ(folder_refusal_of(scratch.path("step-00000004")), "") << "no run";
}

TEST(StagedFolderTest, LeavesNothingIfIncomplete) {
  const Scratch scratch;
  {
    const StagedFolder staged(scratch.path("out"));
    staged.write("config.json", "{}");
    const StagedFolder second(scratch.path("out"));
    EXPECT_NE(second.number(), staged.number()) << "two may be under way";
  }
  EXPECT_TRUE(scratch.empty());
}

TEST(StagedFolderTest, RemovesLeftoversOfKilledWriters) {
  const Scratch scratch;
  for (const char* name : {"out.unfinished-1", "out.unfinished-7", "out.unfinished-7b", "output.unfinished-1"}) {
    std::filesystem::create_directory(scratch.path(name));
    static_cast<void>(scratch.write(std::string(name) + "/model.safetensors", "part"));
  }
  const StagedFolder first(scratch.path("out"));
  EXPECT_EQ(first.number(), 1);
  EXPECT_TRUE(std::filesystem::is_empty(first.path()));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out.unfinished-7")));
  for (const char* other : {"out.unfinished-7b", "output.unfinished-1"})
    EXPECT_TRUE(std::filesystem::exists(scratch.path(other))) << other;
  first.write("config.json", "{}");
  const StagedFolder second(scratch.path("out"));
  EXPECT_EQ(read_file(first.path() + "/config.json"), "{}") << "its writer lives";
}

TEST(StagedFolderTest, AnInputIsNoLeftover) {
  const Scratch scratch;
  const std::string folder = scratch.path("out");
  std::filesystem::create_directory(scratch.path("out.unfinished-1"));
  EXPECT_NO_THROW(require_new_folder(folder, 0, {"", scratch.path("other")}));
  for (const char* input : {"out.unfinished-1", "out.unfinished-1/tokenizer.json"}) {
    EXPECT_THAT(
        [&] { require_new_folder(folder, 0, {scratch.path(input)}); },
        ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("out: would remove " + scratch.path(input))));
  }
}

TEST(StagedFolderTest, AHeldNameIsTakenByNoOtherRun) {
  const Scratch scratch;
  const std::string folder = scratch.path("in/out");
  {
    const FolderHold hold(folder);
    EXPECT_THAT([&] { const FolderHold other(folder); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("out: another run writes this folder")));
    StagedFolder staged(folder);
    staged.write("config.json", "{}");
    EXPECT_EQ(staged.commit(), folder);
  }
  // A rank that replaces a lost one takes the hold again, whatever has appeared there.
  EXPECT_NO_THROW(const FolderHold again(folder));
  StagedFolder second(folder);
  EXPECT_EQ(second.commit(), folder + ".2");
  EXPECT_TRUE(std::filesystem::exists(folder));
  { const FolderHold hold(scratch.path("unused")); }
  EXPECT_FALSE(std::filesystem::exists(scratch.path("unused")));
}

TEST(StagedFolderTest, OverwritesNothing) {
  const Scratch scratch;
  EXPECT_EQ(folder_refusal_of(scratch.path("out")), "");
  std::filesystem::create_directory(scratch.path("out"));
  EXPECT_EQ(folder_refusal_of(scratch.path("out")), "") << "an empty folder may be filled";
  StagedFolder staged(scratch.path("out"));
  scratch.write("out/kept", "text");
  EXPECT_THAT(folder_refusal_of(scratch.path("out")), HasSubstr("exists already"));
  EXPECT_EQ(staged.commit(), scratch.path("out.2"));
  EXPECT_EQ(read_file(scratch.path("out/kept")), "text");
  EXPECT_THAT(folder_refusal_of(scratch.path("out/kept")), HasSubstr("exists already"));
  EXPECT_THAT(folder_refusal_of(scratch.path("out/kept/new")),
              HasSubstr("out/kept/new: cannot be written (Not a directory)"));
  std::filesystem::create_directory(scratch.path("empty"));
  std::filesystem::create_directory_symlink(scratch.path("empty"), scratch.path("link"));
  EXPECT_THAT(folder_refusal_of(scratch.path("link/")), HasSubstr("exists already"))
      << "a folder cannot replace a link";
  EXPECT_THAT(folder_refusal_of(scratch.path("empty/.")), HasSubstr("is not a valid name for a new folder"));
  EXPECT_THAT(folder_refusal_of(scratch.path("other"), std::uint64_t{1} << 60), HasSubstr("the files need"));
}

}  // namespace
}  // namespace chimera
