// The machines of machines/: every file reads, and the planner could use it.

#include <gtest/gtest.h>

#include <filesystem>

#include "plan/machine.h"

namespace chimera {
namespace {

std::vector<std::filesystem::path> machine_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(CHIMERA_SOURCE_DIR "/machines")) {
    files.push_back(entry.path());
  }
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

TEST(MachineLibraryTest, TheP100TakesThePublishedTimes) {
  const MachineProfile machine = read_machine(CHIMERA_SOURCE_DIR "/machines/p100-aries.json");
  const LayerTime time = layer_time(machine, find_model("bert-48"), LayerKind::Block, {.micro_batch_size = 8});
  EXPECT_DOUBLE_EQ(time.forward, 4.50e-3);
  EXPECT_DOUBLE_EQ(time.input_gradient + time.weight_gradient, 7.65e-3);
  EXPECT_EQ(machine.workers_per_node, 1);
}

}  // namespace
}  // namespace chimera
