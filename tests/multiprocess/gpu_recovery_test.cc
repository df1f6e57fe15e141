// Runs on GPUs that lose ranks and continue: their numbers equal those of an undisturbed run. The GPUs are fake
// (support/fake_gpu_library.cc), and like NCCL's, their operations end with wrong data once they are aborted.

#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/paths.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

constexpr const char* kWorkers = "workers";  // A run without lost ranks does not have this field
const Words kFourStages = "--stages 4 --micro-batches 8";
const Words kChimera = "--schedule chimera" + kFourStages;
const Words kZeroBubble = "--schedule chimera-zb" + kFourStages;
const Words kFourPipelines = kChimera + "--pipelines 4";
const Words kTwoGroups = "--schedule 1f1b --stages 2 --micro-batches 4 --data-parallel 2";
const Words kMuon = "--optimizer muon";
const Words kShards = {"--shard-optimizer"};

/// The program beside the library of fake GPUs.
class FakeGpuProgram {
 public:
  FakeGpuProgram() {
    const std::filesystem::path program = program_path();
    std::filesystem::create_directory(folder_.path("bin"));
    for (const std::filesystem::path& file :
         {program, program.parent_path() / "libchimera_training.so", std::filesystem::path(CHIMERA_FAKE_GPU)}) {
      std::filesystem::copy_file(file, folder_.path("bin/" + file.filename().string()));
    }
    std::filesystem::create_directory_symlink(source_path("/machines"), folder_.path("machines"));
  }
  [[nodiscard]] ProgramResult train(const Scratch& scratch, const Words& flags, const std::string& faults) const {
    // On GPUs all time without progress counts, also while a busy machine runs other processes.
    const bool hangs = faults.find("stop") != std::string::npos;
    const Words arguments = small_training(scratch) + flags +
                            split(
                                "--device cuda --model gpt2-tiny --steps 8 --hang-seconds {} --reduction canonical "
                                "--dropout 0.1 --validate-every 3",
                                hangs ? "5" : "30");
    return run(arguments, faults, 4);
  }
  [[nodiscard]] ProgramResult run(const Words& arguments, const std::string& faults, int ranks) const {
    return ProgramRun(arguments, {.environment = {"CHIMERA_SHARE_GPU=1", "CHIMERA_FAULT=" + faults},
                                  .ranks = ranks,
                                  .program = folder_.path("bin/chimera")})
        .wait();
  }

 private:
  Scratch folder_;
};

const FakeGpuProgram& program() {
  static const FakeGpuProgram program;
  return program;
}

struct Losses {
  const char* recover;
  const char* faults;
  Words flags;
  std::size_t ranks;  // lost
};

class TrainingGpuRecoveryTest : public ::testing::TestWithParam<Losses> {};

TEST_P(TrainingGpuRecoveryTest, RunEqualsTheUndisturbedRunAndLosesNoStep) {
  const auto& [recover, faults, flags, ranks] = GetParam();
  const Scratch undisturbed;
  EXPECT_EQ(program().train(undisturbed, flags, "").exit_code, 0);
  const Scratch scratch;
  const ProgramResult result = succeeded(program().train(scratch, flags + Words{"--recover", recover}, faults));
  EXPECT_EQ(occurrences(result.messages, "rank "), ranks) << result.messages;
  expect_clean(result);
  const std::vector<nlohmann::json> numbers = numbers_in(scratch, kWorkers);
  EXPECT_EQ(numbers.size(), 8U);
  EXPECT_EQ(numbers, numbers_in(undisturbed, kWorkers));
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

TEST(TrainingGpuTest, ProcessesWriteATraceTimesAndAPage) {
  const Scratch scratch;
  const std::string times = scratch.path("times.json");
  const ProgramResult result =
      program().train(scratch,
                      kChimera + split("--trace {} --op-times {} --timeline {}", scratch.path("trace.json"), times,
                                       scratch.path("page.html")),
                      "");
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  int ops = 0;
  const nlohmann::json events = read_json(read_file(scratch.path("trace.json")))["traceEvents"];
  for (const nlohmann::json& event : events) {
    if (event["ph"] == "X" && event["pid"] == 1 && event["name"] == "2F0") ++ops;
  }
  EXPECT_EQ(ops, 8) << "one a step";
  const ProgramResult simulated =
      run_program(split("simulate chimera --stages 4 --micro-batches 8 --costs {} --format json", times));
  EXPECT_EQ(simulated.exit_code, 0) << simulated.messages;
}

TEST(TrainingGpuTest, AProfileChecksTheGpusOfAHost) {
  const Scratch scratch;
  const std::string here = scratch.path("here.json");
  const ProgramResult result = succeeded(program().run(
      split("profile --device cuda --model gpt2-tiny --micro-batch-sizes 1,2 --sequence 16 --seconds 0.2 --output {}",
            here),
      "", 2));
  EXPECT_NE(result.output.find("GPU 1: Fake GPU, 80 GiB, "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("; messages with GPU 0 at "), std::string::npos);
  EXPECT_NE(result.output.find("sum over 2 GPUs: right, at "), std::string::npos);
  const nlohmann::json machine = read_json(read_file(here));
  EXPECT_EQ(machine["workers_per_node"], 2);
  ASSERT_EQ(machine["layers"].size(), 3U);
  EXPECT_GT(machine["layers"][1]["times"][1]["forward"], 0);
  EXPECT_GT(machine["point_to_point"]["within_node"]["beta"], 0);
  EXPECT_EQ(program()
                .run(split("plan --model gpt2-tiny --sequence 16 --workers 2 --mini-batch 8 --machine {}", here), "", 1)
                .exit_code,
            0);
  const std::string checked = scratch.path("checked.json");
  ASSERT_EQ(program().run(split("profile --device cuda --output {}", checked), "", 2).exit_code, 0);
  EXPECT_FALSE(read_json(read_file(checked)).contains("layers")) << "layers of other models would spoil plans";
}

}  // namespace
}  // namespace chimera::testing
