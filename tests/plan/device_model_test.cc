#include "plan/device_model.h"

#include <gtest/gtest.h>

#include "model_config/config.h"
#include "plan/layer_times.h"

namespace chimera {
namespace {

/// A device of 1,000 FLOP/s and 100 bytes a second, whose products reach half of the peak, attention a tenth.
MachineProfile slow_device() {
  MachineProfile machine{.name = "slow", .workers_per_node = 8};
  machine.matrix_flops = {{DataType::Float32, 1000}, {DataType::BFloat16, 4000}};
  machine.memory_bandwidth = 100;
  machine.device = {.products = 0.5, .attention = 0.1, .fused_attention = 0.2, .fused_part = 0.25, .fused_sums = 0.75};
  return machine;
}

DeviceTime block(const MachineProfile& machine, const Workload& workload, std::int64_t ranks = 1,
                 const char* model = "gpt2-mini") {
  return device_time(machine, find_model(model), LayerKind::Block, workload, ranks);
}

TEST(DeviceModelTest, ABlocksTimeIsThatOfItsKernels) {
  const ModelConfig model = find_model("gpt2-mini");
  const Workload workload{.micro_batch_size = 2};
  const DeviceTime time = block(slow_device(), workload);
  const LayerFootprint work = layer_footprint(model, LayerKind::Block, workload);
  const double attention = block_flops(model, workload).attention;
  EXPECT_DOUBLE_EQ(time.forward.products, (work.forward_flops - attention) / 500);
  EXPECT_DOUBLE_EQ(time.weight_gradient.all(), work.weight_gradient_flops / 500 + work.activations / 100);
  EXPECT_DOUBLE_EQ(time.forward.attention, 0.5 * attention / 100) << "half of the scores are skipped";
  EXPECT_DOUBLE_EQ(time.input_gradient.attention, 2.5 * time.forward.attention);
  EXPECT_DOUBLE_EQ(time.forward.bytes, 3 * work.activations / 100);
  EXPECT_DOUBLE_EQ(time.input_gradient.bytes, 4 * work.activations / 100);
  const ModelConfig bert = find_model("bert-large");
  EXPECT_DOUBLE_EQ(block(slow_device(), workload, 1, "bert-large").forward.attention,
                   block_flops(bert, workload).attention / 100)
      << "BERT attends to later tokens";
}

TEST(DeviceModelTest, SmallProductsAreSlowerAndTRanksDivideThem) {
  MachineProfile machine = slow_device();
  const Workload workload{.micro_batch_size = 2};
  const double large = block(machine, workload).forward.products;
  EXPECT_DOUBLE_EQ(block(machine, workload, 2, "llama-mini").forward.products,
                   block(machine, workload, 1, "llama-mini").forward.products / 2);
  machine.device.product_size = 64;
  const double small = block(machine, workload).forward.products;
  EXPECT_GT(small, (1 + 64.0 / 256) * large);
  Workload sliced = workload;
  sliced.slices = 4;
  EXPECT_NEAR(block(machine, sliced).forward.products - small, large * 64 * 3 / 256, 1e-9 * large);
  EXPECT_GT(block(machine, workload, 2, "llama-mini").forward.products,
            1.01 * block(machine, workload, 1, "llama-mini").forward.products / 2);
}

TEST(DeviceModelTest, AnOpTakesAtLeastItsLaunches) {
  MachineProfile machine = slow_device();
  const Workload workload{.micro_batch_size = 1, .slices = 2};
  machine.block_launch = 1e9;
  const DeviceTime time = block(machine, workload);
  EXPECT_DOUBLE_EQ(time.forward.all(), 2e9);
  EXPECT_DOUBLE_EQ(time.weight_gradient.all(), 2e9);
  machine.kernels = Kernels::Fused;
  EXPECT_DOUBLE_EQ(block(machine, workload).forward.all(), 0.5e9) << "fewer launches";
}

TEST(DeviceModelTest, FusedKernelsMoveFewerBytesAndHideSums) {
  MachineProfile machine = slow_device();
  machine.all_reduce.within_node.beta = 1;
  const ModelConfig model = find_model("llama-mini");
  const Workload workload{.micro_batch_size = 2};
  const auto sums = [&] { return tensor_sums(machine, model, LayerKind::Block, workload, 2).forward; };
  const DeviceTime eager = block(machine, workload);
  const double eager_sums = sums();
  machine.kernels = Kernels::Fused;
  const DeviceTime fused = block(machine, workload);
  EXPECT_DOUBLE_EQ(fused.forward.products, eager.forward.products);
  EXPECT_DOUBLE_EQ(fused.forward.bytes, eager.forward.bytes / 4);
  EXPECT_DOUBLE_EQ(fused.forward.attention, eager.forward.attention / 2);
  EXPECT_DOUBLE_EQ(sums(), eager_sums / 4);
}

TEST(DeviceModelTest, MeasuredLayersAreScaledByItToOtherShapes) {
  MachineProfile machine = slow_device();
  machine.device.product_size = 64;
  machine.block_launch = 2;
  const ModelConfig measured = find_model("gpt2-mini");
  const double slower = 1.5;  // than the model says
  for (const LayerKind kind : {LayerKind::Embedding, LayerKind::Block, LayerKind::Head}) {
    LayerTimes layer{.kind = kind, .model = measured, .sequence = 128};
    for (const std::int64_t size : {1, 2, 8}) {
      const DeviceTime time = device_time(machine, measured, kind, {.micro_batch_size = size}, 1);
      layer.times.push_back({size, slower * time.forward.all(), slower * time.input_gradient.all(),
                             slower * time.weight_gradient.all(), slower * time.forward.all(), 0.1});
    }
    machine.layers.push_back(layer);
  }
  MachineProfile modeled = machine;
  modeled.layers.clear();
  // Another width, sequence, type of numbers, slices, and ranks that share a layer.
  const Workload workload{.micro_batch_size = 1, .sequence = 1024, .compute_bytes = 2, .slices = 4};
  for (const std::int64_t ranks : {1, 2}) {
    for (const LayerTimes& layer : machine.layers) {
      const auto time_on = [&](const MachineProfile& of) {
        return split_layer_time(of, find_model("llama-mini"), layer.kind, workload, ranks);
      };
      EXPECT_DOUBLE_EQ(time_on(machine).whole(), slower * time_on(modeled).whole());
      EXPECT_EQ(time_on(machine).spread, 0.1);
    }
  }
}

TEST(DeviceModelTest, LayersAddUp) {
  const MachineProfile machine = slow_device();
  const ModelConfig model = find_model("gpt2-mini");
  const Workload workload{.micro_batch_size = 2};
  double seconds = 0;
  for (const LayerKind kind : {LayerKind::Embedding, LayerKind::Block, LayerKind::Head}) {
    const double count = kind == LayerKind::Block ? static_cast<double>(model.layers) : 1;
    seconds += count * layer_time(machine, model, kind, workload).whole();
  }
  const KernelSeconds all = kernel_seconds(machine, model, workload, 1);
  EXPECT_NEAR(all.all(), seconds, 1e-9 * seconds);
  EXPECT_NEAR(attention_time_share(machine, model, workload), all.attention / all.all(), 1e-12);
}

}  // namespace
}  // namespace chimera
