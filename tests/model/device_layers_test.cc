// Layers on a GPU: kernels per block, and equality with the CPU's layers. The GPU is a fake device, whose kernels are the
// CPU's (support/fake_device.h).

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/dropout.h"
#include "model/layers.h"
#include "model/linear.h"
#include "model/llama_stage.h"
#include "model/rms_norm.h"
#include "model/stage.h"
#include "support/fake_device.h"

namespace chimera {
namespace {

using testing::FakeDevice;

const at::Device kDevice(testing::kFakeDevice, 0);

class DeviceLayersTest : public ::testing::Test {
 protected:
  DeviceLayersTest() {
    FakeDevice::install();
    FakeDevice::get().clear();
  }
};

/// A stage with one block or more, between other stages.
std::unique_ptr<Stage> inner_stage(const ModelConfig& config, std::int64_t blocks, at::ScalarType type,
                                   at::Device device) {
  return make_stage(config, {.first_layer = 0, .end_layer = blocks}, type, /*seed=*/1, TiedLeaves{}, device);
}

struct Kernels {
  std::vector<std::string> forward;
  std::vector<std::string> backward;
};

/// Kernels of a whole backward (B), or of I and W.
Kernels kernels_of(const std::string& model, std::int64_t blocks, bool is_split) {
  ModelConfig config = find_model(model);
  config.layers = blocks;
  const auto stage = inner_stage(config, blocks, at::kBFloat16, kDevice);
  const at::Tensor input = at::rand({2, 8, config.hidden}).to(at::kBFloat16).to(kDevice).requires_grad_();
  const auto queue = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(queue);
  Kernels kernels;
  FakeDevice::get().clear();
  const at::Tensor output = stage->forward(input, {});
  kernels.forward = FakeDevice::get().kernels();
  const at::Tensor gradient = at::ones(output.sizes(), output.options());
  FakeDevice::get().clear();
  if (is_split) queue->defer();
  torch::autograd::backward({output}, {gradient});
  queue->run();
  kernels.backward = FakeDevice::get().kernels();
  return kernels;
}

/// Prints how often each op was called.
std::string counts(const std::vector<std::string>& kernels) {
  std::map<std::string, int> times;
  for (const std::string& name : kernels) ++times[name];
  return fmt::format("{}", times);
}

struct BlockKernels {
  std::string model;
  std::size_t forward;
  std::size_t backward;
  std::size_t added;  // more per backward of a stage
};

class KernelsPerBlockTest : public DeviceLayersTest, public ::testing::WithParamInterface<BlockKernels> {};

// In bfloat16 with float32 master weights, as in training on a GPU. docs/devices.md has the numbers.
TEST_P(KernelsPerBlockTest, AreThoseOfTheDocuments) {
  const auto& [model, forward, backward, added] = GetParam();
  for (const bool is_split : {false, true}) {
    const Kernels one = kernels_of(model, 1, is_split);
    const Kernels three = kernels_of(model, 3, is_split);
    EXPECT_EQ(one.forward.size(), forward) << counts(one.forward);
    EXPECT_EQ(three.forward.size(), 3 * forward) << counts(three.forward);
    EXPECT_EQ(one.backward.size(), backward + added) << counts(one.backward);
    EXPECT_EQ(three.backward.size(), 3 * backward + added) << counts(three.backward);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KernelsPerBlockTest,
                         ::testing::Values(BlockKernels{"gpt2-tiny", 10, 23, 2}, BlockKernels{"llama-tiny", 14, 27, 2}),
                         [](const auto& info) { return info.param.model.substr(0, info.param.model.find('-')); });

}  // namespace
}  // namespace chimera
