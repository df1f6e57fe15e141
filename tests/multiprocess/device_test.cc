// --device and --dtype bfloat16 of the built program. Tests that need a GPU skip if there is none.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;

bool has_gpu() { return std::filesystem::exists("/dev/nvidiactl"); }

/// Returns true if `tools/cuda-build` has built its library.
bool has_library() {
  return std::filesystem::exists(std::filesystem::path(program_path()).parent_path() / "libchimera_cuda.so");
}

std::vector<json> device_train(const Words& flags) {
  const Scratch scratch;
  succeeded(run_program(small_training(scratch) + flags));
  return read_metrics(scratch.path("metrics.jsonl"));
}

TEST(TrainingDeviceTest, Bfloat16HasTheSameBitsOnProcessesThreadsAndUnpipelined) {
  const Words common =
      "--model gpt2-tiny --dtype bfloat16 --force-bfloat16 --steps 4 --clip 0.1 --dropout 0.1 --reduction canonical "
      "--micro-batches 4";
  const auto reference = device_train(common + "--schedule none");
  ASSERT_EQ(reference.size(), 4U);
  for (const Words flags :
       {"--schedule chimera --stages 4 --transport processes", "--schedule zb-h1 --stages 2 --transport processes",
        "--schedule chimera --stages 4 --transport threads"}) {
    const auto steps = device_train(common + flags);
    ASSERT_EQ(steps.size(), reference.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const char* field : {"loss", "grad_norm", "parameters_hash"})
        EXPECT_EQ(steps[i].at(field), reference[i].at(field)) << flags[1] << ": " << field << " of step " << i + 1;
    }
  }
}

TEST(TrainingDeviceTest, CudaWithoutAGpuIsRefusedInOneLine) {
  const Scratch scratch;
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // hides the machine's GPUs
  const std::string missing = has_library() ? "no usable GPU here" : "tools/cuda-build";
  for (const std::string transport : {"processes", "threads"}) {
    const Words command = split("train --data {} --model gpt2-tiny --device cuda --transport {}",
                                scratch.write("text.txt", sample_text()), transport);
    expect_refusal({command, {"--device cuda", missing, "--device cpu"}});
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(TrainingDeviceTest, ThreadsOnOneGpuTrainAsTheCpuDoes) {
  if (!has_gpu()) GTEST_SKIP() << "this machine has no GPU";
  if (!has_library()) GTEST_SKIP() << "tools/cuda-build has not been run";
  const Words common = "--model gpt2-tiny --stages 4 --steps 10 --transport threads --micro-batches 4";
  for (const std::string schedule : {"none", "1f1b", "chimera", "zb-h1"}) {
    const auto cpu = device_train(common + Words{"--schedule", schedule});
    const auto gpu = device_train(common + split("--schedule {} --device cuda", schedule));
    ASSERT_EQ(cpu.size(), gpu.size()) << schedule;
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      for (const char* field : {"loss", "grad_norm"}) {
        const double value = cpu[i].at(field).get<double>();
        EXPECT_NEAR(gpu[i].at(field).get<double>(), value, 1e-9 * value)
            << schedule << ": " << field << " of step " << i;
      }
    }
  }
}

/// Slices attend to earlier keys by flash attention, whose causal mask ends at the last key.
TEST(TrainingDeviceTest, SlicesTrainInBfloat16AsWholeSequences) {
  if (!has_gpu()) GTEST_SKIP() << "this machine has no GPU";
  if (!has_library()) GTEST_SKIP() << "tools/cuda-build has not been run";
  for (const std::string model : {"gpt2-tiny", "llama-tiny"}) {
    const Words common = split(
        "--model {} --sequence 64 --steps 4 --transport threads --stages 2 --schedule 1f1b --micro-batches 4 --dtype "
        "bfloat16 --device cuda",
        model);
    const auto whole = device_train(common);
    const auto sliced = device_train(common + "--slices 4");
    ASSERT_EQ(sliced.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const double loss = whole[i].at("loss").get<double>();
      EXPECT_NEAR(sliced[i].at("loss").get<double>(), loss, 2e-3 * loss) << model << ": step " << i + 1;
    }
  }
}

TEST(TrainingDeviceTest, GraphStepsTrainLikeOthers) {
  if (!has_gpu()) GTEST_SKIP() << "this machine has no GPU";
  if (!has_library()) GTEST_SKIP() << "tools/cuda-build has not been run";
  const Words common =
      "--model gpt2-tiny --schedule none --steps 10 --transport threads --micro-batches 4 --device cuda";
  const auto plain = device_train(common);
  const auto graphs = device_train(common + "--cuda-graphs");
  ASSERT_EQ(plain.size(), graphs.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double loss = plain[i].at("loss").get<double>();
    EXPECT_NEAR(graphs[i].at("loss").get<double>(), loss, 1e-6 * loss) << "step " << i;
  }
}

}  // namespace
}  // namespace chimera::testing
