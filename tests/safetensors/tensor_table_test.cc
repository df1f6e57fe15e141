#include "safetensors/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <vector>

#include "safetensors/bytes.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTwo = R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";

TEST(TensorTableTest, KnowsEveryTensorByName) {
  const std::string file = file_of(kTwo, 26);
  const TensorTable table = table_of(file);
  EXPECT_THAT(table.names(), ElementsAre("a", "b"));
  const TensorEntry b = table.find("b").value();
  EXPECT_EQ(b.type, ElementType::F32);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.begin, file.size() - 26);
  EXPECT_EQ(b.bytes, 24U);
  EXPECT_EQ(table.all()[0].type, ElementType::BF16);
  EXPECT_THAT(table.all()[0].shape, IsEmpty());
  EXPECT_FALSE(table.find("c"));
}

TEST(TensorTableTest, AcceptsAllThatTheFormatAllows) {
  EXPECT_EQ(refusal_of(file_of("{}", 0)), "");
  EXPECT_EQ(refusal_of(file_of("{}      ", 0)), "");
  EXPECT_EQ(refusal_of(file_of(R"({"a":{"data_offsets":[0,0],"shape":[0,5],"dtype":"I64"}})", 0)), "");
  EXPECT_EQ(refusal_of(file_of(R"({"f4":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2)), "");
  const std::string commented = file_of(R"({"__metadata__":{"format":"pt","é":"\u00e9"}})", 0);
  EXPECT_EQ(table_of(commented).metadata().at("format"), "pt");
}

struct Unsound {
  std::string file;
  const char* says;
};
const char* const kTensor = R"("shape":[2],"data_offsets":[0,8]})";

/// Every class of errors of the reference, github.com/huggingface/safetensors, safetensors/src/tensor.rs, and more.
const std::vector<Unsound>& unsound() {
  static const std::vector<Unsound> files = {
      {"", "0 bytes are too few"},
      {"1234567", "7 bytes are too few"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 7\n",
       "is a pointer of Git LFS, not the file"},
      {"<!DOCTYPE html>\n<html>", "is a web page, not the file itself; download it from its address with 'resolve'"},
      {"Entry not found", "begins with the text 'Entry not found'; expected a safetensors file"},
      {file_of("", 0), "does not begin with '{'"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10), "is cut off: its header has 16 bytes, the whole file only 10"},
      {std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "gives its header 100000001 bytes; safetensors allows at most"},
      {std::string(8, '\xff') + "{}", "gives its header 18446744073709551615 bytes"},
      {file_of(" {}", 0), "does not begin with '{'"},
      {file_of("[]", 0), "does not begin with '{'"},
      {file_of("{", 0), "JSON: "},
      {file_of("{}x", 0), "JSON: "},
      {file_of(std::string_view("{}\0", 3), 0), "zero byte"},
      {file_of("{\"\xff\":1}", 0), "JSON: "},
      {file_of(R"({"a":1})", 0), "tensor 'a': expected an object, found number"},
      {file_of(R"({"a":[]})", 0), "expected an object, found array"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__, 'a': expected a text, found number"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__: the field is given twice"},
      {file_of(R"({"__metadata__":{"a":"","a":""}})", 0), "__metadata__.a: the field is given twice"},
      {file_of(R"({"a":{}})", 0), "tensor 'a': field 'dtype' is missing"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "field 'data_offsets' is missing"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F32",)" + std::string(kTensor) + "}", 8),
       "a.dtype: the field is given twice"},
      {file_of(R"({"a":{"dtype":"F32","offset":3,)" + std::string(kTensor) + "}", 8), "unknown field 'offset'"},
      {file_of(R"({"a":{"dtype":"float32",)" + std::string(kTensor) + "}", 8),
       "dtype 'float32' is not a type of safetensors"},
      {file_of(R"({"a":{"dtype":32,)" + std::string(kTensor) + "}", 8), "dtype: expected a text, found number"},
      {file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "shape: expected an array, found number"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "found '-2'"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "found '2.0'"},
      {file_of(R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8),
       "shape: expected whole numbers from 0 to 2^63 - 1"},
      {file_of(R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8),
       "found '9223372036854775808'"},
      {file_of(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})", 8), "found '1e+20'"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "data_offsets must be two numbers"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8), "data_offsets: more than 2 numbers"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "end 0 is before begin 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
       "F32 [2] takes 8 bytes, but data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "the number of its elements overflows"},
      {file_of(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0),
       "the number of its bytes overflows"},
      {file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), "3 elements of F4 make no whole bytes"},
      {file_of(R"({"a":{"dtype":"F32",)" + std::string(kTensor) +
                   R"(,"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
               16),
       "a: the field is given twice"},
      {file_of(R"({"a":{"dtype":"F32",)" + std::string(kTensor) +
                   R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
               12),
       "tensor 'b' begins at byte 4 of the data: an overlap, because the tensor before it ends at 8"},
      {file_of(R"({"a":{"dtype":"F32",)" + std::string(kTensor) +
                   R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
               20),
       "tensor 'b' begins at byte 12 of the data: a hole, because the tensor before it ends at 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", 16),
       "begins at byte 8 of the data: a hole"},
      {file_of(kTwo, 25), "is cut off: its tensors take 26 bytes, it has 25"},
      {file_of(kTwo, 30), "has 4 bytes after its last tensor"},
  };
  return files;
}

TEST(TensorTableTest, RejectsInvalidFilesInOneLine) {
  for (const Unsound& example : unsound()) {
    const std::string message = refusal_of(example.file);
    EXPECT_THAT(message, HasSubstr(example.says)) << example.file;
    EXPECT_EQ(message.substr(0, 3), "w: ") << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(TensorTableTest, RejectsExcessiveNamesNumbersAndShapes) {
  const std::string deep(200'000, '[');
  EXPECT_NE(refusal_of(file_of("{\"a\":" + deep, 0)), "");
  EXPECT_THAT(refusal_of(file_of("{\"" + std::string(2 << 20, 'a'), 0)), HasSubstr("JSON: "));
  EXPECT_THAT(refusal_of(file_of("{\"a\":" + std::string(2 << 20, '1'), 0)), HasSubstr("JSON: "));
  std::string shape = "1";
  for (int i = 1; i < 65; ++i) shape += ",1";
  EXPECT_THAT(refusal_of(file_of(R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})", 1)),
              HasSubstr("shape: more than 64 numbers"));
}

std::size_t allocated_bytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

/// A header with only empty tensors, each in as few bytes as possible.
TEST(TensorTableTest, TakesLittleMemory) {
  std::string header = "{";
  for (int i = 0; header.size() < 10'000'000; ++i)
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const std::string file = file_of(header + "}", 0);
  const ReadBytes read = reader_of(file);
  const std::size_t before = allocated_bytes();
  std::size_t most = before;
  const TensorTable table("w", file.size(), [&](std::uint64_t offset, std::span<std::byte> into) {
    most = std::max(most, allocated_bytes());
    read(offset, into);
  });
  EXPECT_GT(table.all().size(), 130'000U);
  EXPECT_LT(std::max(most, allocated_bytes()) - before, 3 * file.size());
}

TEST(TensorTableTest, ReadsBackALayout) {
  const SafetensorsLayout layout = lay_out({{.name = "z", .type = ElementType::F64, .shape = {3}},
                                            {.name = "a \"quoted\"", .type = ElementType::BF16, .shape = {2, 0}},
                                            {.name = "b", .type = ElementType::U8, .shape = {5}}},
                                           {{"format", "pt"}});
  EXPECT_EQ(layout.head.size() % 8, 0U);
  const TensorTable table = table_of(layout.head + std::string(layout.file_bytes - layout.head.size(), 'x'));
  ASSERT_EQ(table.all().size(), 3U);
  for (const TensorEntry& tensor : layout.tensors) {
    const auto found = table.find(tensor.name);
    ASSERT_TRUE(found) << tensor.name;
    EXPECT_EQ(found->begin, tensor.begin);
    EXPECT_EQ(found->bytes, tensor.bytes);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->type, tensor.type);
  }
  EXPECT_EQ(table.metadata().size(), 1U);
}

}  // namespace
}  // namespace chimera
