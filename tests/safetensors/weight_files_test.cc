#include "safetensors/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "safetensors/bytes.h"
#include "support/message_of.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Scratch;

/// A file with one tensor of two bytes.
std::string one(const std::string& name) {
  return file_of("{\"" + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2);
}

std::string folder_refusal(const std::string& folder) {
  return testing::message_of([&] { const WeightFiles files(folder); });
}

/// Two files, `a` in the first and `b` in the second, with this index.
void write_two(const Scratch& scratch, const std::string& index) {
  scratch.write("model-00001-of-00002.safetensors", one("a"));
  scratch.write("model-00002-of-00002.safetensors", one("b"));
  scratch.write(kIndexName, index);
}
constexpr const char* kIndex = R"({"metadata":{"total_size":4,"more":[{}]},"weight_map":{)"
                               R"("b":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors"}})";

TEST(WeightFilesTest, ReadsOneFile) {
  const Scratch scratch;
  scratch.write(kWeightsName, file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 0) + "abcd");
  const WeightFiles files(scratch.path(""));
  const auto found = files.find("a");
  ASSERT_TRUE(found);
  std::string bytes(2, ' ');
  found->file->read(found->tensor, 1, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, "bc");
  EXPECT_FALSE(files.find("b"));
}

TEST(WeightFilesTest, ReadsSeveralByTheirIndex) {
  const Scratch scratch;
  write_two(scratch, kIndex);
  const WeightFiles files(scratch.path(""));
  EXPECT_THAT(files.names(), ElementsAre("a", "b"));
  EXPECT_THAT(files.find("b")->file->path(), HasSubstr("model-00002-of-00002"));
}

TEST(WeightFilesTest, AFileThatShrinksIsAnError) {
  const Scratch scratch;
  const std::string path = scratch.write(kWeightsName, one("a"));
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::string bytes(2, ' ');
  EXPECT_THAT(testing::message_of(
                  [&] { file.read(file.tensors().all()[0], 0, std::as_writable_bytes(std::span(bytes))); }, "accepted"),
              HasSubstr("it was cut off while it was read"));
}

TEST(WeightFilesTest, RefusesAFolderWithoutSafetensors) {
  const Scratch scratch;
  EXPECT_THAT(folder_refusal(scratch.path("none")), HasSubstr("is not a folder"));
  EXPECT_THAT(folder_refusal(scratch.path("")), HasSubstr("has neither model.safetensors nor model.safetensors.index"));
  scratch.write("pytorch_model.bin", "PK");
  EXPECT_THAT(folder_refusal(scratch.path("")), HasSubstr("pytorch_model.bin: is a pickle, which can run any code"));
  ASSERT_EQ(::mkfifo(scratch.path(kWeightsName).c_str(), 0600), 0);
  EXPECT_THAT(folder_refusal(scratch.path("")), HasSubstr("is not a regular file"));
}

TEST(WeightFilesTest, IndexAndFilesMustAgree) {
  const Scratch scratch;
  write_two(scratch, R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  EXPECT_EQ(folder_refusal(scratch.path("")), "");  // the second file is not part of the set
  write_two(scratch,
            R"({"weight_map":{"a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
  EXPECT_THAT(folder_refusal(scratch.path("")), HasSubstr("tensor 'c' is not in model-00002-of-00002.safetensors"));
  write_two(scratch,
            R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00003-of-00002.safetensors"}})");
  EXPECT_THAT(folder_refusal(scratch.path("")),
              HasSubstr("'model-00003-of-00002.safetensors' cannot be found (No such file or directory)"));
  write_two(scratch, kIndex);
  scratch.write("model-00002-of-00002.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                                            R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                                            3));
  EXPECT_EQ(folder_refusal(scratch.path("")), "") << "an equal copy of a tensor";
  EXPECT_THAT(WeightFiles(scratch.path("")).names(), ElementsAre("a", "b"));
  scratch.write("model-00002-of-00002.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                            R"("c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                            2));
  EXPECT_THAT(folder_refusal(scratch.path("")), HasSubstr("model-00002-of-00002.safetensors: has tensor 'c', but"));
}

TEST(WeightFilesTest, DifferentCopiesOfATensorNameBothFiles) {
  const Scratch scratch;
  write_two(scratch, kIndex);
  const std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})";
  scratch.write("model-00002-of-00002.safetensors", file_of(header, 0) + "xyxx");
  EXPECT_THAT(folder_refusal(scratch.path("")),
              HasSubstr("tensor 'a' is in model-00001-of-00002.safetensors and, with other content, in "
                        "model-00002-of-00002.safetensors"));
}

TEST(WeightFilesTest, ASingleFileBesideAnIndexOfOthersIsRefused) {
  const Scratch scratch;
  write_two(scratch, kIndex);
  for (const std::string& stray : {one("a"), std::string("cut")}) {
    scratch.write(kWeightsName, stray);
    EXPECT_THAT(folder_refusal(scratch.path("")),
                HasSubstr("has both model.safetensors and model.safetensors.index.json, which names other files"));
  }
  scratch.write(kWeightsName, one("a"));
  scratch.write(kIndexName, R"({"weight_map":{"a":"model.safetensors","b":"model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(folder_refusal(scratch.path("")), "") << "it may be one of the index's files";
}

TEST(WeightFilesTest, LinksMayNotLeaveTheFolder) {
  const Scratch outside;
  const Scratch scratch;
  write_two(scratch, kIndex);
  const std::string second = scratch.path("model-00002-of-00002.safetensors");
  std::filesystem::rename(second, scratch.path("b"));
  std::filesystem::create_symlink("b", second);
  EXPECT_EQ(folder_refusal(scratch.path("")), "") << "within the folder they may";
  std::filesystem::remove(second);
  std::filesystem::create_symlink(outside.write("b", one("b")), second);
  EXPECT_THAT(folder_refusal(scratch.path("")), HasSubstr("is a link out of the folder"));
}

TEST(WeightMapTest, NamesOnlyFilesBesideTheIndex) {
  for (const char* file : {"../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "..", "", ".safetensors",
                           "x\\u0000.safetensors", "pytorch_model.bin"}) {
    EXPECT_THAT(index_refusal_of(std::string(R"({"weight_map":{"a":")") + file + "\"}}"),
                HasSubstr("weight_map: tensor 'a' is said to be in '"))
        << file;
  }
}

TEST(WeightMapTest, NamesTheEndingOfSafetensors) {
  for (const char* file : {"model.st", "pytorch_model.bin", "model.gguf"}) {
    EXPECT_THAT(index_refusal_of(std::string(R"({"weight_map":{"a":")") + file + "\"}}"),
                HasSubstr("names end in .safetensors"))
        << file;
  }
}

TEST(WeightMapTest, RejectsInvalidIndexes) {
  const std::vector<std::pair<const char*, const char*>> examples = {
      {"", "i: JSON: "},
      {"[]", "must be an object"},
      {"{}", "has no weight_map"},
      {R"({"weight_map":[]})", "weight_map must be an object"},
      {R"({"weight_map":{}})", "names no tensor"},
      {R"({"weight_map":{"a":1}})", "tensor 'a': the name of a file must be a text"},
      {R"({"weight_map":{"a":{}}})", "tensor 'a': the name of a file must be a text"},
      {R"({"weight_map":{"a":"x.safetensors"},"weight_map":{}})", "weight_map: the field is given twice"},
      {R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "weight_map.a: the field is given twice"},
      {R"({"weight_map":{"a":"x.safetensors"}} more)", "i: JSON: "},
  };
  for (const auto& [text, says] : examples) EXPECT_THAT(index_refusal_of(text), HasSubstr(says)) << text;
}

}  // namespace
}  // namespace chimera
