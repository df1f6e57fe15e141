#include "hugging_face/staged_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "safetensors/weight_files.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::Scratch;

std::string folder_refusal_of(const std::string& folder, std::uint64_t bytes = 0) {
  try {
    require_new_folder(folder, bytes);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(StagedFolderTest, AppearsAtomically) {
  const Scratch scratch;
  const std::string folder = scratch.path("out");
  const ExportPlan plan = plan_export(
      {{.name = "a", .type = ElementType::U8, .shape = {3}}, {.name = "b", .type = ElementType::U8, .shape = {2}}}, 3);
  StagedFolder staged(folder + "/");
  staged.make_weights(plan);
  staged.write("config.json", "{}");
  for (const ExportFile& file : plan.files) {
    PartWriter writer(StagedFolder::path_of(folder, staged.number()) + "/" + file.name);
    for (const TensorEntry& tensor : file.layout.tensors) {
      const std::string text(tensor.bytes, tensor.name[0]);
      writer.write(tensor.begin, std::as_bytes(std::span(text)));
    }
    writer.finish();
  }
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
  for (const char* other : {"out.unfinished-7b", "output.unfinished-1"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch.path(other))) << other;
  }
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
