#include "model/safetensors_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace chimera {
namespace {

class SafetensorsFileTest : public ::testing::Test {
 protected:
  ~SafetensorsFileTest() override { std::filesystem::remove(path_); }

  std::string written(const std::string& header, const std::string& data) {
    std::ofstream file(path_, std::ios::binary);
    const std::uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header << data;
    return path_;
  }

  std::string path_ = ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(SafetensorsFileTest, GivesTensorsAndMetadata) {
  const std::string header = R"({"__metadata__":{"family":"gpt2"},)"
                             R"("yes":{"dtype":"BOOL","shape":[1,2],"data_offsets":[0,2]},)"
                             R"("n":{"dtype":"I64","shape":[],"data_offsets":[2,10]}})";
  const auto file = read_safetensors(written(header, std::string("\x01\x00\x07\x00\x00\x00\x00\x00\x00\x00", 10)));
  EXPECT_EQ(file.metadata.at("family"), "gpt2");
  EXPECT_TRUE(at::equal(file.tensors.at("yes"), at::arange(1, -1, -1, at::kLong).to(at::kBool).view({1, 2})));
  EXPECT_EQ(file.tensors.at("n").item<std::int64_t>(), 7);
}

TEST_F(SafetensorsFileTest, RefusesATruncatedFile) {
  EXPECT_THROW((void)read_safetensors("absent"), Error);
  const std::string header = R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  EXPECT_THROW((void)read_safetensors(written(header, "1234567")), Error);
}

}  // namespace
}  // namespace chimera
