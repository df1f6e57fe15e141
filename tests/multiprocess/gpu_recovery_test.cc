// Runs on GPUs that lose ranks and continue: their numbers equal those of an undisturbed run. The GPUs are fake
// (support/fake_gpu_library.cc), and like NCCL's, their operations end with wrong data once they are aborted.

#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

const Arguments kFourStages = {"--stages", "4", "--micro-batches", "8"};
const Arguments kChimera = Arguments{"--schedule", "chimera"} + kFourStages;
const Arguments kZeroBubble = Arguments{"--schedule", "chimera-zb"} + kFourStages;
const Arguments kFourPipelines = kChimera + Arguments{"--pipelines", "4"};
const Arguments kTwoGroups = {"--schedule", "1f1b", "--stages", "2", "--micro-batches", "4", "--data-parallel", "2"};
const Arguments kMuon = {"--optimizer", "muon"};
const Arguments kShards = {"--shard-optimizer"};

/// The program beside the library of fake GPUs.
class FakeGpuProgram {
 public:
  FakeGpuProgram() {
    const std::filesystem::path program = program_path();
    for (const std::filesystem::path& file :
         {program, program.parent_path() / "libchimera_training.so", std::filesystem::path(CHIMERA_FAKE_GPU)}) {
      std::filesystem::copy_file(file, folder_.path(file.filename().string()));
    }
  }
  [[nodiscard]] ProgramResult train(const Scratch& scratch, const Arguments& flags, const std::string& faults) const {
    // On GPUs all time without progress counts, also while a busy machine runs other processes.
    const bool hangs = faults.find("stop") != std::string::npos;
    const Arguments arguments = small_training(scratch) + flags +
                                Arguments{"--device",         "cuda",      "--model",        "gpt2-tiny",
                                          "--steps",          "8",         "--hang-seconds", hangs ? "5" : "30",
                                          "--reduction",      "canonical", "--dropout",      "0.1",
                                          "--validate-every", "3"};
    return ProgramRun(arguments, {.environment = {"CHIMERA_SHARE_GPU=1", "CHIMERA_FAULT=" + faults},
                                  .ranks = 4,
                                  .program = folder_.path("chimera")})
        .wait();
  }

 private:
  Scratch folder_;
};

const FakeGpuProgram& program() {
  static const FakeGpuProgram program;
  return program;
}

/// Metrics without the number of workers, which a run without lost ranks does not have.
std::vector<nlohmann::json> numbers_of_steps(const Scratch& scratch) {
  std::vector<nlohmann::json> numbers = numbers_in(scratch);
  for (nlohmann::json& line : numbers) line.erase("workers");
  return numbers;
}

struct Losses {
  const char* recover;
  const char* faults;
  Arguments flags;
  std::size_t ranks;  // lost
};

class TrainingGpuRecoveryTest : public ::testing::TestWithParam<Losses> {};

TEST_P(TrainingGpuRecoveryTest, RunEqualsTheUndisturbedRunAndLosesNoStep) {
  const auto& [recover, faults, flags, ranks] = GetParam();
  const Scratch undisturbed;
  EXPECT_EQ(program().train(undisturbed, flags, "").exit_code, 0);
  const Scratch scratch;
  const ProgramResult result = program().train(scratch, flags + Arguments{"--recover", recover}, faults);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(occurrences(result.messages, "rank "), ranks) << result.messages;
  EXPECT_EQ(result.orphans, 0);
  EXPECT_FALSE(result.left_files);
  const std::vector<nlohmann::json> numbers = numbers_of_steps(scratch);
  EXPECT_EQ(numbers.size(), 8U);
  EXPECT_EQ(numbers, numbers_of_steps(undisturbed));
  EXPECT_EQ(numbers_in(scratch).back().contains("workers"), recover == std::string("reroute"));
}

// The kill at `restore` is before the last tensor of a replacement's state.
INSTANTIATE_TEST_SUITE_P(Of, TrainingGpuRecoveryTest,
                         ::testing::Values(Losses{"twin", "kill@backward:1:20,kill@leave:0:1", kChimera, 2},
                                           Losses{"twin", "kill@step:1:3,kill@updated:2:5", kTwoGroups, 2},
                                           Losses{"twin", "kill@step:1:3,kill@restore:0:159", kFourPipelines, 2},
                                           Losses{"twin", "kill@optimizer:1:4", kZeroBubble + kMuon, 1},
                                           Losses{"reroute", "kill@backward:0:13,kill@vote:1:5", kZeroBubble, 2},
                                           Losses{"reroute", "stop@backward:3:14", kChimera, 1},
                                           Losses{"reroute", "kill@vote:1:3,kill@resume:2:1", kFourPipelines, 2},
                                           Losses{"reroute", "kill@optimizer:2:4", kFourPipelines + kShards, 1}),
                         [](const auto& losses) { return std::to_string(losses.index); });

}  // namespace
}  // namespace chimera::testing
