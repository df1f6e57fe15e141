// Checks that every file of machines/ is readable and usable by the planner.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "plan/layer_times.h"
#include "plan/predict.h"
#include "support/paths.h"

namespace chimera {
namespace {

std::vector<std::filesystem::path> machine_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_path("/machines")))
    files.push_back(entry.path());
  return files;
}

TEST(MachineLibraryTest, EveryFileReadsAndNamesItsSources) {
  EXPECT_GE(machine_files().size(), 3U);
  for (const auto& file : machine_files()) {
    const MachineProfile machine = read_machine(file);
    EXPECT_EQ(machine.name, file.stem()) << file;
    EXPECT_GE(machine.sources.size(), 4U) << file;
    EXPECT_GE(machine.memory_bytes, 1e9) << file;
    EXPECT_EQ(machine_from_json(to_json(machine), file), machine) << file;
  }
}

TEST(MachineLibraryTest, EveryFileTimesEveryModel) {
  for (const auto& file : machine_files()) {
    const MachineProfile machine = read_machine(file);
    for (const std::string& model : preset_names()) {
      for (const LayerKind kind : {LayerKind::Embedding, LayerKind::Block, LayerKind::Head}) {
        const LayerTime time = layer_time(machine, find_model(model), kind, {.micro_batch_size = 4});
        EXPECT_GT(time.forward, 0) << file << " " << model;
        EXPECT_GT(time.weight_gradient, 0) << file << " " << model;
      }
    }
  }
}

TEST(MachineLibraryTest, TheP100MatchesThePublishedTimesBeforeItsFit) {
  const MachineProfile machine = read_machine(testing::source_path("/tests/fixtures/machines/p100-published.json"));
  const LayerTime time = layer_time(machine, find_model("bert-48"), LayerKind::Block, {.micro_batch_size = 8});
  EXPECT_DOUBLE_EQ(time.forward, 4.50e-3);
  EXPECT_DOUBLE_EQ(time.input_gradient + time.weight_gradient, 7.65e-3);
}

TEST(MachineLibraryTest, TheP100sBlockIsThePublishedOneTimesTheFittedFactor) {
  const MachineProfile machine = read_machine(testing::source_path("/machines/p100-aries.json"));
  const LayerTime time = layer_time(machine, find_model("bert-48"), LayerKind::Block, {.micro_batch_size = 8});
  const double factor = time.forward / 4.50e-3;  // fitted to whole steps
  EXPECT_GT(factor, 1.2);
  EXPECT_LT(factor, 1.6);
  EXPECT_NEAR((time.input_gradient + time.weight_gradient) / 7.65e-3, factor, 1e-3);
  EXPECT_EQ(machine.workers_per_node, 1);
}

TEST(MachineLibraryTest, GpusOfDataSheetsComputeBelowTheStatedShareOfTheirPeak) {
  constexpr std::int64_t kContext = 8192;
  Workload workload = workload_of(DataType::BFloat16, OptimizerKind::AdamW, 128);
  for (const auto& [name, least] : {std::pair{"a100-80gb", 0.45}, {"h100-80gb", 0.4}}) {
    MachineProfile machine = read_machine(testing::source_path("/machines/") + name + ".json");
    const double peak = machine.matrix_flops.at(DataType::BFloat16);
    for (const char* model : {"llama-3-8b", "mistral-7b", "gpt2-64"}) {
      const ModelConfig config = find_model(model);
      workload.sequence = std::min(config.positions, kContext);
      workload.micro_batch_size = kContext / workload.sequence;
      if (config.sliding_window) workload.sequence = std::min(workload.sequence, *config.sliding_window);
      const double work = layer_footprint(config, LayerKind::Block, workload).weight_gradient_flops;
      const double share = work / layer_time(machine, config, LayerKind::Block, workload).weight_gradient / peak;
      EXPECT_LT(share, machine.device.products) << name << " " << model;
      EXPECT_GT(share, least) << name << " " << model;
    }
    // Without small sizes, bytes and launches, the weight gradient is nothing but products.
    machine.device.product_size = machine.block_launch = 0;
    machine.memory_bandwidth = 1e30;
    const ModelConfig config = find_model("llama-3-8b");
    const double work = layer_footprint(config, LayerKind::Block, workload).weight_gradient_flops;
    const double seconds = layer_time(machine, config, LayerKind::Block, workload).weight_gradient;
    EXPECT_NEAR(work / seconds / peak, machine.device.products, 1e-9) << name;
  }
}

/// benchmarks/results/gpu.md: 16.3, 45.1 and 46.7 % of the peak. One sequence is limited by the host's launches, which
/// are fitted to it.
TEST(MachineLibraryTest, TheH200sBlocksTakeTheMeasuredTimes) {
  const MachineProfile machine = read_machine(testing::source_path("/machines/h200.json"));
  Workload workload = workload_of(DataType::BFloat16, OptimizerKind::AdamW, 128);
  workload.sequence = 1024;
  for (const auto& [size, seconds] : {std::pair<std::int64_t, double>{1, 0.849e-3}, {4, 1.227e-3}, {8, 2.370e-3}}) {
    workload.micro_batch_size = size;
    const double predicted = layer_time(machine, find_model("gpt2-64"), LayerKind::Block, workload).whole();
    EXPECT_NEAR(predicted, seconds, 0.04 * seconds) << size;
  }
}

/// A row of NVIDIA's published figures of BERT-large in float32 on one server (see the profile's `sources`).
struct PublishedThroughput {
  std::int64_t gpus;
  std::int64_t sequence;
  std::int64_t micro_batch_size;
  double sequences_per_second;
};

TEST(MachineLibraryTest, TheV100TrainsAsFastAsPublished) {
  PlanProblem problem;
  problem.model = find_model("bert-large");
  problem.machine = read_machine(testing::source_path("/machines/v100-nvlink.json"));
  problem.memory_bytes = problem.machine.memory_bytes;
  const auto error = [&](const PublishedThroughput& row) {
    problem.workers = row.gpus;
    problem.mini_batch = row.gpus * row.micro_batch_size;
    problem.workload.sequence = row.sequence;
    const Candidate candidate{.schedule = "1f1b",
                              .shape = {.stages = 1, .micro_batches = 1},
                              .data_parallel = row.gpus,
                              .micro_batch_size = row.micro_batch_size};
    return std::abs(Predictor(problem).predict(candidate).sequences_per_second / row.sequences_per_second - 1);
  };
  for (const PublishedThroughput& fitted : {PublishedThroughput{1, 128, 8, 23.9}, {1, 128, 32, 36.3}})
    EXPECT_LT(error(fitted), 0.002) << fitted.micro_batch_size;
  for (const PublishedThroughput& row : {PublishedThroughput{4, 128, 8, 86.9},
                                         {8, 128, 8, 167.8},
                                         {4, 128, 32, 141.5},
                                         {8, 128, 32, 281.3},
                                         {1, 512, 4, 6.9},
                                         {4, 512, 4, 26.4},
                                         {8, 512, 4, 52.4}})
    EXPECT_LT(error(row), 0.1) << row.gpus << " GPUs, sequences of " << row.sequence;
}

}  // namespace
}  // namespace chimera
