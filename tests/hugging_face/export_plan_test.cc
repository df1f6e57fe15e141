#include "safetensors/weight_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"

namespace chimera {
namespace {

std::vector<TensorEntry> three() {
  return {{.name = "a", .type = ElementType::BF16, .shape = {3}},
          {.name = "b", .type = ElementType::F32, .shape = {2, 5}},
          {.name = "c", .type = ElementType::F32, .shape = {1}}};
}

TEST(ExportPlanTest, OneFileNeedsNoIndex) {
  const ExportPlan plan = plan_export(three(), kDefaultShardBytes);
  ASSERT_EQ(plan.files.size(), 1U);
  EXPECT_EQ(plan.files[0].name, "model.safetensors");
  EXPECT_EQ(plan.index, "");
  for (const TensorEntry& tensor : plan.files[0].layout.tensors)
    EXPECT_EQ(tensor.begin % (bits_of(tensor.type) / 8), 0U) << tensor.name << " is aligned";
}

TEST(ExportPlanTest, DistributesTensorsToFilesInOrder) {
  const ExportPlan plan = plan_export(three(), 44);
  ASSERT_EQ(plan.files.size(), 2U);
  EXPECT_EQ(plan.files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(plan.files[0].layout.tensors.size(), 1U);
  EXPECT_EQ(plan.files[1].layout.tensors.size(), 2U) << "44 bytes";
  const auto index = read_json(plan.index);
  EXPECT_EQ(index["metadata"]["total_size"], 6 + 40 + 4);
  EXPECT_EQ(index["weight_map"]["a"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(plan_export(three(), 1).files.size(), 3U) << "a large tensor gets a file of its own";
}

TEST(ExportPlanTest, ReadsSizes) {
  EXPECT_EQ(parse_bytes("--shard-size", "5GB"), 5'000'000'000U);
  EXPECT_EQ(parse_bytes("--shard-size", "300MB"), 300'000'000U);
  EXPECT_EQ(parse_bytes("--shard-size", "1GiB"), std::uint64_t{1} << 30);
  EXPECT_EQ(parse_bytes("--shard-size", "17"), 17U);
  for (const char* text : {"", "GB", "0", "0GB", "-1GB", "5 GB", "5gb", "5TB", "1e9", "99999999999999GB"})
    EXPECT_THROW((void)parse_bytes("--shard-size", text), ConfigError) << text;
}

}  // namespace
}  // namespace chimera
