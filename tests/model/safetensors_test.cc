#include "model/element_types.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "model/safetensors_file.h"

namespace chimera {
namespace {

std::string file_in_temp(const char* name) { return std::filesystem::temp_directory_path() / name; }

TEST(SafetensorsTest, WritesWhatAReaderReads) {
  const std::string path = file_in_temp("chimera-safetensors-test");
  const at::Tensor numbers = at::arange(6, at::kDouble).reshape({2, 3});
  write_safetensors(path, {{"b", numbers.t()}, {"a", at::tensor({7L, -1L})}, {"none", at::empty({0, 4}, at::kDouble)}},
                    {{"format", "pt"}});
  const LoadedTensors file = read_safetensors(path);
  std::filesystem::remove(path);
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_TRUE(at::equal(file.tensors.at("b"), numbers.t()));
  EXPECT_TRUE(at::equal(file.tensors.at("a"), at::tensor({7L, -1L})));
  EXPECT_EQ(file.tensors.at("none").sizes(), at::IntArrayRef({0, 4}));
}

TEST(SafetensorsTest, LeavesNoHalfWrittenFile) {
  const std::string file = file_in_temp("chimera-safetensors-parent");
  write_safetensors(file, {});
  EXPECT_THROW(write_safetensors(file + "/file", {}), ConfigError) << "its folder cannot be made";
  const std::string complex = file_in_temp("chimera-safetensors-complex");
  EXPECT_THROW(write_safetensors(complex, {{"c", at::zeros({1}, at::kComplexFloat)}}), Error);
  EXPECT_FALSE(std::filesystem::exists(complex));
}

}  // namespace
}  // namespace chimera
