// Ranks that share layers, as processes: the same numbers as one rank, checkpoints for any T, refusals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "multiprocess/training.h"
#include "support/paths.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kSumTolerance = 1e-11;  // relative, in float64: sums in another order

const Words kSharedModel =
    "--model llama-tiny --layers 4 --hidden 32 --heads 4 --key-value-heads 2 --steps 6 --clip 0.5 --seed 3 --dropout "
    "0.1 --threads 1";
const Words kShared = "--schedule 1f1b --stages 2 --micro-batches 4 --tensor-parallel 2";
const Words kWhole = "--schedule none --micro-batches 4";
const Words kFourStages = "--schedule chimera --stages 4 --micro-batches 4";

std::vector<double> losses_in(const std::string& path) {
  std::vector<double> losses;
  for (const auto& line : read_metrics(path)) losses.push_back(line.at("loss"));
  return losses;
}

void expect_same_losses(const Scratch& scratch, const std::string& one, const std::string& other) {
  const auto expected = losses_in(scratch.path(one));
  const auto losses = losses_in(scratch.path(other));
  ASSERT_EQ(losses.size(), 6U);
  ASSERT_EQ(expected.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(losses[i], expected[i], kSumTolerance * expected[i]) << "step " << i + 1;
}

void run_to_its_end(const Words& arguments) {
  const ProgramResult result = succeeded(run_program(arguments));
  expect_clean(result);
}

TEST(TensorParallelTrainingTest, ProcessesAndThreadsTrainAsOneRank) {
  const Scratch scratch;
  const Words validates = kSharedModel + "--validate-every 3";
  run_to_its_end(small_training(scratch, "whole.jsonl") + validates + kWhole);
  for (const char* transport : {"processes", "threads"}) {
    run_to_its_end(small_training(scratch, "shared.jsonl") + validates + kShared + Words{"--transport", transport});
    expect_same_losses(scratch, "whole.jsonl", "shared.jsonl");
  }
}

TEST(TensorParallelTrainingTest, KilledRunResumesWithoutSplitLayersAndBack) {
  const Scratch scratch;
  run_to_its_end(small_training(scratch, "whole.jsonl") + kSharedModel + kWhole);
  const std::pair<Words, Words> ways[] = {{kShared, kFourStages}, {kFourStages, kShared}};
  for (const auto& [first, second] : ways) {
    const Scratch folder;
    const Words saves = split("--checkpoint {} --save-every 2", folder.path("run"));
    ProgramSetup fault;
    fault.environment = {"CHIMERA_FAULT=kill@step:3:5"};
    const ProgramResult killed =
        ProgramRun(small_training(scratch, "metrics.jsonl") + kSharedModel + first + saves, fault).wait();
    EXPECT_NE(killed.exit_code, 0);
    EXPECT_THAT(killed.messages, HasSubstr("rank 3"));
    run_to_its_end(small_training(scratch, "metrics.jsonl") + kSharedModel + second + saves + "--resume auto");
    expect_same_losses(scratch, "whole.jsonl", "metrics.jsonl");
  }
}

TEST(TensorParallelTrainingTest, ARestartedJobGoesOn) {
  const Scratch scratch;
  run_to_its_end(small_training(scratch, "whole.jsonl") + kSharedModel + kWhole);
  ProgramSetup fault;
  fault.environment = {"CHIMERA_FAULT=kill@step:2:4"};
  const ProgramResult restarted =
      ProgramRun(small_training(scratch, "metrics.jsonl") + kSharedModel + kShared +
                     split("--checkpoint {} --save-every 2 --max-restarts 3", scratch.path("run")),
                 fault)
          .wait();
  EXPECT_EQ(restarted.exit_code, 0) << restarted.messages;
  expect_same_losses(scratch, "whole.jsonl", "metrics.jsonl");
}

TEST(TensorParallelTrainingTest, ExportsTheModelThatOneRankExports) {
  const Scratch scratch;
  for (const auto& [folder, layout] : {std::pair{"whole", kWhole}, std::pair{"shared", kShared}})
    run_to_its_end(small_training(scratch) + kSharedModel + layout + Words{"--export", scratch.path(folder)});
  for (const char* folder : {"whole", "shared"}) {
    scratch.write(std::string(folder) + ".json",
                  output_of(split("evaluate --from {} --data {} --sequence 32 --format json", scratch.path(folder),
                                  scratch.path("text.txt"))));
  }
  const auto loss = [&](const char* folder) {
    return try_json(read_file(scratch.path(std::string(folder) + ".json"))).at("loss").get<double>();
  };
  EXPECT_NEAR(loss("shared"), loss("whole"), 1e-9 * loss("whole"));
}

TEST(TensorParallelTrainingTest, ExportsPartsThatTheRanksDoNotDivide) {
  const Words llama = "--model llama-mini --layers 1 --hidden 28 --heads 7 --key-value-heads 7 --vocabulary 257";
  const Words bert = "--model bert-tiny --layers 1 --vocabulary 263";
  for (const auto& [model, ranks] : {std::pair{llama, "2"}, std::pair{llama, "3"}, std::pair{bert, "2"}}) {
    const Scratch scratch;
    const Words layout =
        split("--schedule none --tensor-parallel {} --steps 1 --export {}", ranks, scratch.path("model"));
    run_to_its_end(small_training(scratch) + model + layout);
    EXPECT_TRUE(std::filesystem::exists(scratch.path("model/model.safetensors"))) << model[1];
  }
}

TEST(TensorParallelTrainingTest, ADryRunKnowsThePartsOfEveryRank) {
  const Scratch scratch;
  const auto dry_run = [&](const Words& layout) {
    return try_json(output_of(small_training(scratch) + kSharedModel + layout + "--dry-run --format json"));
  };
  const auto shared = dry_run(kShared);
  ASSERT_EQ(shared.at("ranks").size(), 4U);
  EXPECT_EQ(shared.at("tensor_parallel"), 2);
  EXPECT_EQ(shared.at("ranks")[3].at("worker"), 1);
  EXPECT_EQ(shared.at("ranks")[3].at("tensor"), 1);
  const auto whole = dry_run("--schedule 1f1b --stages 2 --micro-batches 4");
  const auto parameters = [](const auto& rank) { return rank.at("parameters").template get<double>(); };
  const double half = parameters(whole.at("ranks")[0]) / 2;
  EXPECT_GT(parameters(shared.at("ranks")[0]), half) << "norms are whole";
  EXPECT_LT(parameters(shared.at("ranks")[0]), 1.05 * half);
}

TEST(TensorParallelTrainingTest, PeaksOfMemoryAreThoseOfTheDryRun) {
  constexpr double kTolerance = 0.05;
  const Scratch scratch;
  const std::string file = scratch.path("tensors.json");
  const Words sizes =
      "--layers 4 --hidden 128 --heads 4 --micro-batch-size 2 --sequence 128 --steps 2 --threads 1 --overwrite";
  const Words four = "--schedule 1f1b --stages 1 --micro-batches 4 --tensor-parallel 4";
  for (const Words& layout : {kShared, four}) {
    for (const Words model : {"--model gpt2-tiny", "--model llama-tiny --key-value-heads 2 --tied true"}) {
      for (const Words more : {"", "--recompute attention", "--recompute full", "--sequence-parallel none"}) {
        const Words run =
            Words{"train", "--data", scratch.write("text.txt", sample_text())} + sizes + model + layout + more;
        run_to_its_end(run + Words{"--tensor-memory", file});
        const auto measured = try_json(read_file(file)).at("peak_bytes");
        const auto said = try_json(run_program(run + "--dry-run --format json").output).at("ranks");
        ASSERT_EQ(measured.size(), 4U);
        for (std::size_t rank = 0; rank < 4; ++rank) {
          const double bytes = measured[rank];
          EXPECT_NEAR(said[rank].at("peak_memory_bytes").get<double>() / bytes, 1, kTolerance)
              << layout.back() << " " << model[1] << " " << (more.empty() ? "" : more.back()) << ", rank " << rank;
        }
      }
    }
  }
}

TEST(TensorParallelTrainingTest, APlanWithSplitLayersTrains) {
  const Scratch scratch;
  auto machine = try_json(read_file(source_path("/machines/p100-aries.json")));
  machine["cores"] = 8;
  machine["workers_per_node"] = 4;
  const std::string plan = scratch.path("plan.toml");
  const std::string file = scratch.write("machine.json", json_text(machine));
  const Words asked = split(
      "plan --model gpt2-tiny --workers 4 --mini-batch 8 --sequence 32 --machine {} --schedules 1f1b --stages 2 "
      "--tensor-parallel 2",
      file);
  const ProgramResult job = run_program(asked + "--sbatch -");
  EXPECT_THAT(job.output, HasSubstr("#SBATCH --nodes=2\n#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=2\n"
                                    "#SBATCH --distribution=block\n"));
  EXPECT_THAT(job.output, HasSubstr(" --tensor-parallel 2 "));
  EXPECT_THAT(run_program(asked + "--sbatch - --ranks-per-node 1").messages,
              HasSubstr("--ranks-per-node 1: the plan has 2 ranks that share layers, on one node"));
  succeeded(run_program(asked + Words{"--output", plan}));
  EXPECT_THAT(read_file(plan), HasSubstr("tensor-parallel = 2\n"));
  EXPECT_THAT(output_of(split("train --config {} --data {} --steps 2 --transport threads", plan,
                              scratch.write("text.txt", sample_text()))),
              HasSubstr("2 stages on 4 threads, 2 on the layers of a worker"));
}

TEST(TensorParallelTrainingTest, RefusalsAreOneLine) {
  const Scratch scratch;
  expect_refusal({small_training(scratch) + kSharedModel + kShared + "--device cuda --op-graphs",
                  {"--tensor-parallel 2: --cuda-graphs or --op-graphs is not supported yet"}});
  const ProgramResult pairs = run_program("schedule 1f1b --stages 2 --micro-batches 4 --pairs neighbors --format json");
  expect_refusal(
      {small_training(scratch) + kSharedModel +
           split("--schedule {} --overlap-pairs --tensor-parallel 2", scratch.write("pairs.json", pairs.output)),
       {"--tensor-parallel 2: --overlap-pairs is not supported yet; leave it out"}});
  expect_refusal({small_training(scratch) + kSharedModel + kFourStages + "--tensor-parallel 3",
                  {"--tensor-parallel 3: parts of 2 of the 4 heads of model llama-tiny leave none to the last rank; 2 "
                   "is possible"}});
}

TEST(TensorParallelTrainingTest, NoLauncherSplitsAGroupOverHosts) {
  const Scratch scratch;
  const std::vector<std::vector<std::string>> launchers = {
      {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"},
      {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
       "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
      {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_STEP_ID=0",
       "SLURM_STEP_TASKS_PER_NODE=1,3"},
      {"CHIMERA_RANK=1", "CHIMERA_WORLD_SIZE=4", "CHIMERA_LOCAL_RANK=0", "CHIMERA_LOCAL_WORLD_SIZE=3"},
      {"CHIMERA_RANK=2", "CHIMERA_WORLD_SIZE=4", "CHIMERA_LOCAL_RANK=1", "CHIMERA_LOCAL_WORLD_SIZE=2"}};
  for (const auto& launcher : launchers) {
    ProgramSetup setup;
    setup.environment = launcher;
    const ProgramResult result = ProgramRun(small_training(scratch) + kSharedModel + kShared, setup).wait();
    EXPECT_EQ(result.exit_code, 2) << launcher.front();
    EXPECT_THAT(result.messages, HasSubstr("share layers and must be on one host")) << launcher.front();
  }
}

}  // namespace
}  // namespace chimera::testing
