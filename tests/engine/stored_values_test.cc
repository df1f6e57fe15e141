#include "engine/stored_values.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "hugging_face/config_json.h"
#include "model/element_types.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using testing::Scratch;

ModelConfig small_model(Family family) {
  return {.name = "small",
          .family = family,
          .layers = 4,
          .hidden = 32,
          .heads = 4,
          .feed_forward = 64,
          .vocabulary = 101,
          .positions = 16,
          .tied = false};
}

std::shared_ptr<const ModelFolder> folder_of(const Scratch& scratch, const ModelConfig& model, ElementType type) {
  std::map<std::string, at::Tensor> tensors;
  for (const TensorEntry& tensor : exported_tensors(model, type))
    tensors[tensor.name] = at::randn(tensor.shape).to(floating_type(type));
  scratch.write(kConfigName, to_config_json(model, type));
  write_safetensors(scratch.path(kWeightsName), tensors);
  return std::make_shared<const ModelFolder>(scratch.path(""));
}

/// Bytes that this process has asked read() and pread() for.
std::int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::int64_t bytes = -1;
  file >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

/// Returns the bytes of files that `act` reads.
template <class Act>
std::int64_t bytes_read_by(const Act& act) {
  const std::int64_t first = bytes_read();
  const std::int64_t second = bytes_read();  // has read the file of `first`
  act();
  return bytes_read() - second - (second - first);
}

TEST(StoredValuesTest, ARankHasItsPartOfEveryParameter) {
  for (const Family family : {Family::Gpt2, Family::Bert, Family::Llama}) {
    for (const ElementType type : {ElementType::F32, ElementType::BF16}) {
      const Scratch scratch;
      const auto folder = folder_of(scratch, small_model(family), type);
      const InitialValue value = values_from_folder(folder);
      for (const ParameterSpec& parameter : all_parameters(folder->model())) {
        const at::Tensor whole = value(parameter, at::kFloat, {});
        const auto cut = tensor_cut(parameter.name);
        for (std::int64_t rank = 0; rank < 4; ++rank) {
          const at::Tensor part = value(parameter, at::kFloat, {rank, 4});
          EXPECT_TRUE(at::equal(part, cut ? local_part(whole, *cut, {rank, 4}) : whole)) << parameter.name << rank;
        }
      }
    }
  }
}

TEST(StoredValuesTest, AStageReadsOnlyItsPart) {
  for (const Family family : {Family::Gpt2, Family::Llama}) {
    const Scratch scratch;
    const auto folder = folder_of(scratch, small_model(family), ElementType::BF16);
    const StageLayers stage{.first_layer = 0, .end_layer = 2, .embedding = true, .head = false};
    for (const TensorPlace& place : {TensorPlace{0, 1}, TensorPlace{0, 2}, TensorPlace{3, 4}}) {
      std::int64_t held = 0;
      for (const ParameterSpec& parameter : own_parameters(folder->model(), stage))
        held += held_elements(parameter, place);
      const std::int64_t read = bytes_read_by([&] {
        struct Group final : TensorGroup {
          using TensorGroup::TensorGroup;
          void sum(const at::Tensor& /*values*/) override {}
          std::vector<at::Tensor> exchange(const at::Tensor& values) override { return {values}; }
        } group(place);
        (void)make_stage(folder->model(), stage, at::kFloat, values_from_folder(folder), {}, at::kCPU,
                         place.ranks == 1 ? nullptr : &group);
      });
      EXPECT_NEAR(static_cast<double>(read), 2.0 * static_cast<double>(held), 8) << "T = " << place.ranks;
    }
  }
}

}  // namespace
}  // namespace chimera
