// Comparison of a model's tensors on a device with the CPU's, on the fake device.

#include "measuring/device_difference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "data/samples.h"
#include "support/fake_device.h"
#include "train/loop/loader.h"
#include "transport/stream.h"

namespace chimera {
namespace {

using testing::FakeDevice;

const at::Device kFake(testing::kFakeDevice, 0);
using Layers = std::vector<std::unique_ptr<Stage>>;

ModelConfig tiny(const std::string& name) { return with_overrides(find_model(name), {.layers = 2, .tied = false}); }

MicroBatch text_batch(const ModelConfig& config) {
  const std::vector<std::uint8_t> text(1024, 'a');
  const auto kind = is_causal(config.family) ? SampleKind::NextToken : SampleKind::MaskedPairs;
  const Samples samples(text_in_memory(text, "text"), SampleOptions{kind, 16, 1});
  return make_micro_batch(samples, config.family, {0, 0, 2, 2});
}

class DeviceDifferenceTest : public ::testing::Test {
 protected:
  DeviceDifferenceTest() {
    FakeDevice::install();
    FakeDevice::get().clear();
  }

  /// The first differing tensor after `spoil` has changed the layers on the device; empty if there is none.
  std::string first_after(const std::function<void(Layers&)>& spoil) {
    const Layers on_cpu = make_single_layers(config_, at::kFloat, 1, at::kCPU);
    Layers on_fake = make_single_layers(config_, at::kFloat, 1, kFake);
    {
      const at::NoGradGuard no_graph;
      spoil(on_fake);
    }
    const auto tensors = compare_layers(on_cpu, on_fake, text_batch(config_), at::kFloat, kFake);
    const DeviceDifference* first = first_different(tensors, rounding_tolerance(at::kFloat));
    return first == nullptr ? "" : first->name;
  }

  ModelConfig config_ = tiny("gpt2-tiny");
};

/// Adds to every element of a parameter.
void add_to(Stage& stage, const std::string& name, double value) {
  for (const Parameter& each : stage.parameters()) {
    if (each.name == name) return static_cast<void>(each.value.add_(value));
  }
  FAIL() << "no parameter is called " << name;
}

TEST_F(DeviceDifferenceTest, EqualModelsAgreeInEveryTensor) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    const ModelConfig config = tiny(model);
    const Layers on_cpu = make_single_layers(config, at::kFloat, 1, at::kCPU);
    const Layers on_fake = make_single_layers(config, at::kFloat, 1, kFake);
    const auto tensors = compare_layers(on_cpu, on_fake, text_batch(config), at::kFloat, kFake);
    std::size_t parameters = 0;
    for (const auto& layer : on_cpu) parameters += layer->parameters().size();
    EXPECT_EQ(tensors.size(), 4 + parameters + 3) << model << ": outputs, gradients of parameters and of inputs";
    EXPECT_EQ(first_different(tensors, rounding_tolerance(at::kFloat)), nullptr) << model;
    for (const DeviceDifference& each : tensors) EXPECT_GT(each.scale, 0) << model << ": " << each.name;
  }
}

TEST_F(DeviceDifferenceTest, NamesTheLayerWhoseForwardDiffers) {
  EXPECT_EQ(first_after([](Layers& layers) { add_to(*layers[0], "wpe.weight", 0.1); }), "embedding: output");
  EXPECT_EQ(first_after([](Layers& layers) { add_to(*layers[2], "h.1.mlp.c_proj.bias", 0.1); }), "block 1: output");
  EXPECT_EQ(first_after([](Layers& layers) { add_to(*layers[3], "ln_f.bias", 10); }), "head: output");
}

TEST_F(DeviceDifferenceTest, NamesTheGradientThatDiffersWhereOutputsAgree) {
  const auto name = first_after([](Layers& layers) {
    for (const Parameter& each : layers[1]->parameters()) {
      if (each.name == "h.0.mlp.c_fc.bias") each.value.grad().add_(1);  // backward adds to it
    }
  });
  EXPECT_EQ(name, "block 0: gradient of h.0.mlp.c_fc.bias");
}

TEST_F(DeviceDifferenceTest, NumbersThatAreNoneDiffer) {
  const auto name = first_after(
      [](Layers& layers) { add_to(*layers[1], "h.0.mlp.c_proj.bias", std::numeric_limits<double>::quiet_NaN()); });
  EXPECT_EQ(name, "block 0: output");
}

TEST_F(DeviceDifferenceTest, ARecordingCountsItsKernels) {
  const PooledStreamGuard stream(kFake);
  const at::Tensor ones = at::ones({4}, at::TensorOptions(kFake));
  const auto work = FakeDevice::get().record([&] { static_cast<void>(ones.add(1).mul(2)); });
  EXPECT_EQ(work->kernels().size(), 2);
}

}  // namespace
}  // namespace chimera
