
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/paths.h"
#include "support/program.h"
#include "support/refusal.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kP100 = testing::source_path("/machines/p100-aries.json");

Words bert_48(const Words& more = {}) {
  return split("plan --model bert-48 --workers 32 --mini-batch 512 --memory 16 --machine {}", kP100) + more;
}

json planned(Words words) {
  words += "--format json";
  return read_json(output_of(words));
}

/// The same with published times of a block, and links fitted to two runs of figure 13.
Words published_bert_48(const Words& more) {
  Words words = bert_48(more);
  std::ranges::replace(words, kP100, testing::source_path("/tests/fixtures/machines/p100-published.json"));
  return words;
}

/// Bubbles then include waits for a core, unlike those of `simulate`.
TEST(PlanCommandTest, SaysThatWorkersShareCores) {
  const Scratch scratch;
  json machine = read_json(read_file(kP100));
  machine["workers_per_node"] = 32;
  const auto text_on = [&](int cores) {
    machine["cores"] = cores;
    Words words = bert_48("--stages 4 --top 1");
    std::ranges::replace(words, kP100, scratch.write("machine.json", json_text(machine)));
    return run_program(words).output;
  };
  EXPECT_THAT(text_on(2), HasSubstr("\n  32 workers share 2 cores of a node, so bubbles include waits for a core\n"));
  EXPECT_THAT(text_on(32), ::testing::Not(HasSubstr(" share ")));
}

TEST(PlanCommandTest, ThePapersRuleMakesThePapersChoice) {
  const json chosen = planned(published_bert_48("--rule paper"))["chosen"];
  EXPECT_EQ(chosen["schedule"], "chimera");
  EXPECT_EQ(chosen["data_parallel"], 8);
  EXPECT_EQ(chosen["stages"], 4);
  EXPECT_EQ(chosen["micro_batch_size"], 8);
  EXPECT_EQ(chosen["micro_batches"], 8);
  EXPECT_EQ(chosen["recompute"], "none");
}

TEST(PlanCommandTest, ThePapersRuleChoosesByEquationOneAmongTheLargestMicroBatches) {
  const json plan = planned(bert_48("--rule paper --top 0"));
  const json& chosen = plan["chosen"];
  EXPECT_EQ(chosen["schedule"], "chimera");
  bool has_papers_choice = false;
  for (const json& each : plan["candidates"]) {
    EXPECT_LE(chosen["equation_1"]["seconds"], each["equation_1"]["seconds"]);
    has_papers_choice |= each["data_parallel"] == 8 && each["stages"] == 4 && each["micro_batch_size"] == 8;
  }
  EXPECT_TRUE(has_papers_choice);
}

TEST(PlanCommandTest, GivenRecomputationOfAttentionSavesMemory) {
  const auto chosen = [](const std::string& recompute) {
    return planned(bert_48(split("--schedules 1f1b --stages 8 --micro-batch-size 1 --partition even --recompute {}",
                                 recompute)))["chosen"];
  };
  const json none = chosen("none");
  const json attention = chosen("attention");
  EXPECT_EQ(attention["recompute"], "attention");
  EXPECT_LT(attention["peak_memory_bytes"].get<double>(), none["peak_memory_bytes"].get<double>());
  EXPECT_GT(attention["step_seconds"].get<double>(), none["step_seconds"].get<double>());
}

TEST(PlanCommandTest, ThePapersRuleRanksAsManyAsAsked) {
  const json all = planned(bert_48("--rule paper --top 0"));
  const json best = planned(bert_48("--rule paper --top 2 --schedules chimera --partition even"));
  ASSERT_GT(all["candidates"].size(), 2U);
  ASSERT_EQ(best["candidates"].size(), 2U);
  EXPECT_EQ(best["candidates"][1], all["candidates"][1]);
  EXPECT_EQ(best["considered"], all["considered"]);
}

TEST(PlanCommandTest, CandidatesAreWholeAndRanked) {
  const json plan = planned(bert_48("--top 3"));
  ASSERT_EQ(plan["candidates"].size(), 3U);
  EXPECT_EQ(plan["chosen"], plan["candidates"][0]);
  double last = 0;
  double last_bytes = 0;
  for (const json& each : plan["candidates"]) {
    EXPECT_EQ(each["data_parallel"].get<int>() * each["stages"].get<int>(), 32);
    EXPECT_EQ(each["data_parallel"].get<int>() * each["micro_batches"].get<int>() * each["micro_batch_size"].get<int>(),
              512);
    if (each.contains("tied")) {
      EXPECT_GE(each["peak_memory_bytes"], last_bytes);
      last_bytes = each["peak_memory_bytes"];
    } else {
      EXPECT_GE(each["step_seconds"], last);
    }
    last = each["step_seconds"];
    EXPECT_NEAR(each["sequences_per_second"].get<double>(), 512 / last, 1e-9);
    EXPECT_LE(each["peak_memory_bytes"], 16.0 * (1 << 30));
    EXPECT_EQ(each["fits"], true);
    EXPECT_LE(each["free_network_seconds"], last);
  }
}

TEST(PlanCommandTest, ShowsBothModelsAndTheGainOfMoreMemory) {
  const ProgramResult result = run_program(bert_48("--schedules chimera --top 2"));
  EXPECT_THAT(result.output, HasSubstr("chosen: chimera"));
  EXPECT_THAT(result.output, HasSubstr("equation 1: "));
  EXPECT_THAT(result.output, HasSubstr("a network that takes no time: "));
  EXPECT_THAT(result.output, HasSubstr("twice the memory: "));
  EXPECT_THAT(result.output, HasSubstr("without a worker (--recover reroute): "));
}

TEST(PlanCommandTest, ForetellsNoLossesOfRanksThatShareLayers) {
  EXPECT_TRUE(planned(bert_48("--top 1")).contains("slowdowns_without_worker"));
  EXPECT_FALSE(planned(bert_48("--top 1 --tensor-parallel 2")).contains("slowdowns_without_worker"));
}

TEST(PlanCommandTest, SaysThatSchedulesDoNotDifferWithoutAPipeline) {
  const char* note = "D = 1 is data parallelism without a pipeline";
  const Words words = split("plan --model gpt2-tiny --workers 2 --mini-batch 8 --machine {}", kP100);
  for (const char* stages : {"1", "2"}) {
    const std::string result = output_of(words + Words{"--stages", stages});
    EXPECT_EQ(result.find(note) != std::string::npos, stages[0] == '1') << result;
  }
}

TEST(PlanCommandTest, ExplainsARowAgainstTheNext) {
  const Words asked = "--schedules chimera --stages 4,8 --pipelines 2 --top 3 --explain";
  const json plan = planned(bert_48(asked));
  ASSERT_EQ(plan["candidates"].size(), 3U);
  EXPECT_FALSE(plan["candidates"][2].contains("step_parts"));
  for (const int row : {0, 1}) {
    const json& candidate = plan["candidates"][static_cast<std::size_t>(row)];
    double sum = 0;
    for (const auto& [part, seconds] : candidate["step_parts"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, candidate["step_seconds"], 1e-9);
    EXPECT_GT(candidate["step_parts"]["exposed_messages"], 0);
    EXPECT_TRUE(candidate["idle_seconds"].contains("warm_up"));
    EXPECT_EQ(candidate["pipelines"], 2);
  }
  Words third = bert_48(asked);
  third.emplace_back("3");
  const std::string text = run_program(third).output;
  EXPECT_THAT(text, HasSubstr("time of a worker's step, in seconds\n"));
  for (const char* row : {" row 1 ", " row 3\n"}) EXPECT_THAT(text, HasSubstr(row));
  EXPECT_THAT(text, HasSubstr("exposed sums"));
}

TEST(PlanCommandTest, ListsTimeAgainstMemory) {
  const json plan = planned(bert_48("--schedules chimera --stages 4 --pareto --partition even"));
  ASSERT_GT(plan["pareto"].size(), 2U);
  EXPECT_EQ(plan["pareto"][0]["step_seconds"], plan["chosen"]["step_seconds"]);
  EXPECT_LT(plan["pareto"].back()["peak_memory_bytes"], 0.6 * plan["chosen"]["peak_memory_bytes"].get<double>());
}

TEST(PlanCommandTest, PrintsALineForEachCandidate) {
  const ProgramResult result = run_program(bert_48("--schedules 1f1b --stages 4 --top 2 --format csv"));
  EXPECT_THAT(result.output,
              HasSubstr("rank,schedule,data_parallel,tensor_parallel,stages,micro_batches,micro_batch_size,"));
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 3);
  EXPECT_THAT(result.output, HasSubstr("\n1,1f1b,8,1,4,"));
}

TEST(PlanCommandTest, WritesAFileForTrain) {
  const Scratch scratch;
  const std::string file = scratch.path("plan.toml");
  const json plan = planned(published_bert_48(split("--rule paper --output {}", file)));
  const std::string text = read_file(file);
  const std::string field = "\npredicted_step_seconds = ";
  ASSERT_THAT(text, HasSubstr(field)) << "a field, which the run reads";
  EXPECT_NEAR(std::stod(text.substr(text.find(field) + field.size())), plan["chosen"]["step_seconds"],
              1e-5 * plan["chosen"]["step_seconds"].get<double>());
  EXPECT_THAT(text, Not(HasSubstr("s a step")));
  EXPECT_THAT(text, HasSubstr("model = \"bert-48\"\n"));
  EXPECT_THAT(text, HasSubstr("stages = 4\n"));
  EXPECT_THAT(text, HasSubstr("data-parallel = 8\n"));
}

TEST(PlanCommandTest, KeepsTheMachineThatWasPlanned) {
  const auto file_of = [](Words more) {
    const Words plan = "plan --model gpt2 --workers 16 --mini-batch 64 --machine h100-80gb";
    more.insert(more.begin(), plan.begin(), plan.end());
    return run_program(more).output;
  };
  const std::string changed = file_of("--network 50Gb/s --memory 20.5 --with-dropout --output /dev/stdout");
  EXPECT_THAT(changed, HasSubstr("machine = \"h100-80gb\"\nnetwork = \"50Gb/s\"\nmemory = \"20.5\"\n"));
  EXPECT_THAT(changed, HasSubstr("dropout = \"0.1\"\n"));
  EXPECT_THAT(file_of("--kernels fused --output /dev/stdout"), Not(HasSubstr("predicted_step")));
}

TEST(PlanCommandTest, WritesEveryFieldThatReplacesOneOfTheModel) {
  const Scratch scratch;
  const std::string file = scratch.path("plan.toml");
  const ProgramResult result =
      run_program(split("plan --model llama-tiny --layers 8 --hidden 128 --heads 8 --key-value-heads 4 --vocabulary "
                        "512 --workers 2 --mini-batch 4 --machine {} --output {}",
                        kP100, file));
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const std::string text = read_file(file);
  for (const char* line : {"model = \"llama-tiny\"\n", "layers = 8\n", "hidden = 128\n", "heads = 8\n",
                           "key-value-heads = 4\n", "vocabulary = 512\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(PlanCommandTest, RefusesInOneLine) {
  const Scratch scratch;
  const std::string broken = scratch.write("broken.json", R"({"format": "chimera-machine", "version": 1})");
  const auto with = [](const Words& flags) { return "plan" + flags; };
  for (const Refusal& refusal : std::vector<Refusal>{
           {with("--workers 4 --mini-batch 8"), {"--machine is missing"}},
           {with(split("--machine {} --mini-batch 8", kP100)), {"--workers is missing"}},
           {with(split("--machine {} --workers 4", kP100)), {"--mini-batch is missing"}},
           {with(split("--machine {} --workers -4 --mini-batch 8", kP100)), {"--workers must be 1 to"}},
           {with(split("--machine {} --workers 4 --mini-batch 8", broken)), {"broken.json", "missing"}},
           {with(split("--machine {} --workers 4 --mini-batch 8", scratch.path("none.json"))), {"none.json"}},
           {with(split("--machine {} --workers 31 --mini-batch 32", kP100)),
            {"31 workers", "mini-batch of 32", "28 workers would do"}},
           {with(split("--machine {} --workers 32 --mini-batch 5 --model gpt2-tiny", kP100)), {"would do"}},
           {with(split("--machine {} --workers 7 --mini-batch 1 --schedules chimera", kP100)),
            {"none of the schedules chimera"}},
           {with(split("--machine {} --workers 4 --mini-batch 8 --schedules chimra", kP100)),
            {"did you mean 'chimera'?"}},
           {with(split("--machine {} --model bert-48 --workers 16 --mini-batch 32 --memory 0.5", kP100)),
            {"bert-48 does not fit on 16 workers of 0.5 GiB", "needs at least"}},
           {bert_48("--rule papr"), {"did you mean 'paper'?"}},
           {bert_48("--rule paper --schedules chimera,1f1b"), {"--rule paper is for chimera alone, not 1f1b"}},
           {bert_48("--rule paper --partition balanced"), {"--rule paper cuts the model evenly"}},
           {bert_48("--rule paper --partition 24,24"), {"--rule paper cuts the model evenly"}},
           {with(split("--machine {} --model bert-48 --workers 31 --mini-batch 31 --rule paper", kP100)),
            {"paper's rule needs", "even"}},
           {bert_48("--rule paper --stages 4"), {"--rule paper decides --stages"}},
           {bert_48("--rule paper --tensor-parallel 2"), {"--rule paper knows no tensor parallelism"}},
           {bert_48("--schedules 1f1b --stages 4 --tensor-parallel 2 --partition even --sbatch -"),
            {"--ranks-per-node 1: the plan has 2 ranks that share layers, on one node"}},
           {bert_48("--tensor-parallel 3"), {"--tensor-parallel 3: no configuration"}},
           {bert_48("--rule paper --slices auto"), {"--rule paper knows no slices"}},
           {bert_48("--slices 2"), {"--slices 2: model bert-48 attends to later tokens"}},
           {bert_48("--slices 257"), {"--slices must be 1 to 256"}},
           {bert_48("--rule paper --pareto"), {"--pareto"}},
           {bert_48("--stages 5"), {"--stages 5: no configuration of 32 workers", "possible values such as"}},
           {bert_48("--stages 4,x"), {"--stages", "'4,x'"}},
           {bert_48("--data-parallel 0"), {"--data-parallel must be 1 to"}},
           {bert_48("--recompute ful"), {"--recompute", "did you mean 'full'?"}},
           {bert_48("--schedules 1f1b --stages 4 --partition even --top 1 --explain 2"),
            {"--explain 2: the table has 1 rows"}},
           {bert_48("--format csv --explain"), {"--explain: a CSV table has no explanations"}},
           {bert_48("--sbatch - --pareto"), {"--pareto: --sbatch - prints the job in place of the table"}},
           {bert_48("--top -1"), {"--top: -1 is not 0 or more"}},
           {bert_48("--sequence 100000"), {"100000"}},
       }) {
    expect_refusal(refusal);
  }
}

Words job_of_32(const Words& more) {
  return split(
             "plan --model bert-48 --workers 32 --mini-batch 512 --memory 16 --machine {} --schedules chimera --stages "
             "8 --data-parallel 4 --pipelines 2 --micro-batch-size 8",
             kP100) +
         more;
}

TEST(PlanCommandTest, WritesAJobForSlurm) {
  const std::string job = output_of(job_of_32("--sbatch -"));
  EXPECT_THAT(job, ::testing::StartsWith("#!/bin/bash\n# Written by `chimera plan` for 32 workers"));
  EXPECT_THAT(job, HasSubstr("#SBATCH --nodes=32\n#SBATCH --ntasks=32\n"));
  EXPECT_THAT(job, HasSubstr(" train --model bert-48 "));
  EXPECT_THAT(job, HasSubstr(" --stages 8 "));
  EXPECT_THAT(job, HasSubstr(" --data-parallel 4 "));
  EXPECT_THAT(job, HasSubstr("export CHIMERA_SECRET\n"));
  EXPECT_EQ(job, read_file(testing::source_path("/recipes/slurm/bert-48-32-nodes.sh")));
  const ProgramResult filled = run_program(job_of_32("--sbatch - --ranks-per-node 4"));
  EXPECT_THAT(filled.output, HasSubstr("#SBATCH --nodes=8\n#SBATCH --ntasks=32\n#SBATCH --ntasks-per-node=4\n"));
}

TEST(PlanCommandTest, FindsShippedProfilesByName) {
  Words by_name = bert_48("--rule paper");
  std::ranges::replace(by_name, kP100, "p100-aries");
  EXPECT_EQ(planned(by_name), planned(bert_48("--rule paper")));
  std::ranges::replace(by_name, "p100-aries", "p100-arie");
  EXPECT_EQ(planned(by_name), planned(bert_48("--rule paper"))) << "the beginning of one name";
  std::ranges::replace(by_name, "p100-arie", "machines/p100-aries.json");
  EXPECT_EQ(planned(by_name), planned(bert_48("--rule paper"))) << "as in the source tree, from its build folder";
  std::ranges::replace(by_name, "machines/p100-aries.json", "p100-arie");
  std::ranges::replace(by_name, "p100-arie", "p100-airs");
  EXPECT_THAT(run_program(by_name).messages,
              HasSubstr("unknown machine profile 'p100-airs'; did you mean 'p100-aries'?"));
}

const Words kEightBillion =
    "plan --model llama-3-8b --workers 16 --mini-batch 32 --machine h100-80gb --stages 8 --schedules 1f1b --top 1 "
    "--partition even --tensor-parallel 1";

TEST(PlanCommandTest, LargeModelsGetTheirContextAndBfloat16) {
  const std::string text = run_program(kEightBillion).output;
  EXPECT_THAT(text,
              ::testing::StartsWith(
                  "llama-3-8b: 8030261248 parameters, sequences of 8192; 16 workers (h100-80gb, network usable at 360 "
                  "Gb/s per GPU)"));
  EXPECT_THAT(text, HasSubstr("\n  bfloat16, adamw; schedules: 1f1b; partition even, recompute auto, sync eager-opt\n"
                              "  not given, so by default: --sequence 8192, --dtype bfloat16\n"));
  EXPECT_THAT(text, Not(HasSubstr("  assumed: ")));
  EXPECT_GT(text.find("\nassumed: "), text.find(" cannot be faster ")) << "after the table";
  const std::string other = run_program(kEightBillion + "--sequence 1024 --dtype float32").output;
  EXPECT_THAT(other, HasSubstr("sequences of 1024;"));
  EXPECT_THAT(other, ::testing::Not(HasSubstr("by default")));
  const std::string small = run_program(bert_48("--stages 4 --schedules 1f1b")).output;
  EXPECT_THAT(small, HasSubstr("by default: --sequence 128, --dtype float32\n"));
}

TEST(PlanCommandTest, PlansForGpusCarryDeviceAndNodes) {
  const Scratch scratch;
  const std::string job = output_of(kEightBillion + split("--output {} --sbatch -", scratch.path("plan.toml")));
  EXPECT_THAT(job, HasSubstr("#SBATCH --nodes=2\n#SBATCH --ntasks=16\n#SBATCH --ntasks-per-node=8\n"
                             "#SBATCH --gpus-per-node=8\n#SBATCH --cpus-per-task=4\n"));
  EXPECT_THAT(job, HasSubstr("#SBATCH --time=24:00:00\n"));
  EXPECT_THAT(job, HasSubstr("--device cuda needs libchimera_cuda.so beside the\n"));
  EXPECT_THAT(job, HasSubstr("# program (tools/cuda-build). Runs on several GPUs were never tried"));
  EXPECT_THAT(job, HasSubstr(" --dtype bfloat16 --optimizer adamw --device cuda "));
  const std::string plan = read_file(scratch.path("plan.toml"));
  EXPECT_THAT(plan, HasSubstr("\ndtype = \"bfloat16\"\n"));
  EXPECT_THAT(plan, HasSubstr("\ndevice = \"cuda\"\n"));
}

TEST(PlanCommandTest, FusedKernelsAreFasterAndOldProfilesStillPlan) {
  const auto with = [](const std::string& machine, const Words& more) {
    Words words = kEightBillion;
    std::ranges::replace(words, "h100-80gb", machine);
    words += more;
    return words;
  };
  const json eager = planned(kEightBillion);
  const json fused = planned(with("h100-80gb", "--kernels fused"));
  EXPECT_EQ(planned(with("h100-80gb", "--kernels eager")), eager);
  EXPECT_EQ(fused["kernels"], "fused");
  EXPECT_LT(fused["chosen"]["step_seconds"], 0.95 * eager["chosen"]["step_seconds"].get<double>());
  const std::string old = testing::source_path("/tests/fixtures/machines/h100-layers.json");
  EXPECT_FALSE(planned(with(old, {})).contains("kernels"));
  expect_refusal({with(old, "--kernels fused"), {"--kernels fused: machine profile 'h100-80gb' has measured layers"}});
}

TEST(PlanCommandTest, ExplainsTheDominatingShareOfTheDevice) {
  Words words = kEightBillion + "--explain";
  const std::string text = run_program(words).output;
  EXPECT_THAT(text,
              ::testing::ContainsRegex("compute: [0-9.]+ % products, at up to [0-9]+ % of the peak .this share dom"));
  words += "--recompute cheap:2+full:1";
  EXPECT_THAT(run_program(words).output, HasSubstr("row 1 recomputes blocks of stages: cheap:2+full:1\n"));
}

TEST(PlanCommandTest, AnExpectedErrorIsOneOfTheJobsKernels) {
  const json plan = planned(kEightBillion);
  const double seconds = plan["chosen"]["step_seconds"];
  EXPECT_LE(plan["expected_seconds"][0], seconds);
  EXPECT_GE(plan["expected_seconds"][1], seconds);
  Words untested = kEightBillion;
  std::ranges::replace(untested, "h100-80gb", "h200");
  EXPECT_FALSE(planned(untested).contains("expected_error"));
  EXPECT_THAT(run_program(untested).output, HasSubstr("unknown, as no run of eager kernels tests this profile"));
}

TEST(PlanCommandTest, MemoryIncludesWhatIsReserved) {
  const Scratch scratch;
  json machine = read_json(read_file(testing::source_path("/machines/h100-80gb.json")));
  machine.erase("reserved");
  Words bare = kEightBillion;
  std::ranges::replace(bare, "h100-80gb", scratch.write("bare.json", json_text(machine)));
  const auto peak = [](const Words& words) { return planned(words)["chosen"]["peak_memory_bytes"].get<double>(); };
  EXPECT_DOUBLE_EQ(peak(kEightBillion) - peak(bare), 1e9 + 1e9 + 0.02 * 80e9);
  EXPECT_THAT(
      run_program(kEightBillion).output,
      HasSubstr("\n  the memory of a worker includes 0.93 GiB for the CUDA context, 0.93 GiB for NCCL, 1.49 GiB "
                "in reserve\n"));
  EXPECT_THAT(run_program(bare).output, Not(HasSubstr("the memory of a worker includes")));
}

TEST(PlanCommandTest, ShowsTokensPerSecondAndTheUtilizationOfThePeak) {
  const json chosen = planned(kEightBillion)["chosen"];
  EXPECT_DOUBLE_EQ(chosen["tokens_per_second"], 8192 * chosen["sequences_per_second"].get<double>());
  const double utilization = chosen["utilization"];
  EXPECT_GT(utilization, 0.2);
  EXPECT_LT(utilization, 0.64) << "the share of the peak that products reach";
  EXPECT_THAT(run_program(kEightBillion).output, ::testing::ContainsRegex("  [0-9]+[.][0-9] %  "));
  EXPECT_FALSE(planned(bert_48("--stages 8 --top 1"))["chosen"].contains("utilization")) << "the profile has no peak";
}

TEST(PlanCommandTest, SaysThatAUtilizationAboveAllOfThePeakIsAWrongProfile) {
  const Scratch scratch;
  json machine = read_json(read_file(testing::source_path("/tests/fixtures/machines/h100-layers.json")));
  for (auto& peak : machine["matrix_flops"]) peak = peak.get<double>() / 10;
  Words wrong = kEightBillion;
  std::ranges::replace(wrong, "h100-80gb", scratch.write("wrong.json", json_text(machine)));
  constexpr const char* kWarning = "an MFU above 100 % is impossible: in the machine profile 'h100-80gb', matrix_flops";
  EXPECT_THAT(run_program(wrong).output, HasSubstr(kWarning));
  EXPECT_THAT(planned(wrong)["chosen"]["warning"].get<std::string>(), HasSubstr(kWarning));
  EXPECT_THAT(run_program(kEightBillion).output, Not(HasSubstr("MFU above")));
}

TEST(PlanCommandTest, RanksThatShareLayersAreOnOneNodeOfGpus) {
  Words words = kEightBillion;
  words.back() = "2";
  words += "--sbatch -";
  const std::string job = output_of(words);
  EXPECT_THAT(job, HasSubstr("#SBATCH --ntasks-per-node=8\n#SBATCH --distribution=block\n"));
  EXPECT_THAT(job, HasSubstr(" --tensor-parallel 2 "));
  EXPECT_THAT(job, HasSubstr(" --device cuda "));
}

TEST(PlanCommandTest, RefusesAJobWithPartialNodes) {
  EXPECT_THAT(run_program(job_of_32("--sbatch - --ranks-per-node 5")).messages,
              HasSubstr("--ranks-per-node 5 does not divide the 32 ranks"));
  EXPECT_THAT(run_program(job_of_32("--ranks-per-node 4")).messages, HasSubstr("is for --sbatch"));
}

TEST(PlanCommandTest, NamesTheExpectedErrorAndTies) {
  const Words asked = "--schedules chimera,1f1b,gpipe --partition even --top 5";
  const json plan = planned(bert_48(asked));
  EXPECT_GT(plan["expected_error"], 0);
  const int tied = plan["tied"];
  ASSERT_GE(tied, 1);
  double best = 1e9;
  for (const json& each : plan["candidates"]) best = std::min(best, each["step_seconds"].get<double>());
  for (int i = 0; i < 5; ++i) {
    const json& each = plan["candidates"][static_cast<std::size_t>(i)];
    EXPECT_EQ(each["step_seconds"].get<double>() <= (1 + plan["tie"].get<double>()) * best, i < tied) << i;
    EXPECT_EQ(each.contains("tied"), tied > 1 && i < tied) << i;
  }
  EXPECT_THAT(run_program(bert_48(asked)).output, HasSubstr("\nexpected error of a step time: "));
}

TEST(PlanCommandTest, TheNetworkIsARateOfNodesOrGpus) {
  const auto on = [](const Words& network) {
    return "plan --model llama-3-8b --workers 16 --mini-batch 64 --machine h100-80gb --stages 8 --schedules 1f1b "
           "--tensor-parallel 1 --top 1" +
           network;
  };
  const auto seconds = [&](const Words& network) {
    return planned(on(network))["chosen"]["step_seconds"].get<double>();
  };
  EXPECT_DOUBLE_EQ(seconds("--network 400Gb/s-per-gpu"), seconds({})) << "the profile's";
  EXPECT_DOUBLE_EQ(seconds("--network 3200Gb/s-per-gpu"), seconds("--network 3.2e3Gb/s-per-gpu"));
  EXPECT_GT(seconds("--network 25Gb/s"), 1.1 * seconds("--network 25Gb/s-per-gpu")) << "eight GPUs share it";
  const std::string text = run_program(on("--network 200Gb/s")).output;
  EXPECT_THAT(text.substr(0, text.find('\n')), HasSubstr("; 16 workers (h100-80gb, network 200Gb/s) of "));
  for (const char* bad : {"200", "Gb/s", "0Gb/s", "-1Gb/s", "200Gb/s-per-node", "nanGb/s"})
    expect_refusal({on({"--network", bad}), {"--network", "expected a rate such as 200Gb/s"}});
}

TEST(PlanCommandTest, SaysWhyNoPipelineIsBest) {
  const Words words =
      "plan --model llama-3-8b --workers 16 --mini-batch 64 --machine h100-80gb --schedules 1f1b --partition even";
  const json plan = planned(words);
  const std::string text = run_program(words).output;
  ASSERT_EQ(plan["chosen"]["stages"], 1) << text;
  EXPECT_THAT(text, HasSubstr("\n  no pipeline is best here: the model fits on "));
  EXPECT_THAT(run_program(words + "--stages 2").output, Not(HasSubstr("no pipeline")));
}

TEST(PlanCommandTest, AJobAsksForStepsAndTakesTheLearningRateOfItsSize) {
  const Scratch scratch;
  const std::string job = run_program(kEightBillion + "--sbatch -").output;
  EXPECT_THAT(job, HasSubstr("# Set --steps: 20 tokens a parameter are 612661 steps of 2.62e+05 tokens."));
  EXPECT_THAT(job, HasSubstr(" --learning-rate 0.00012 "));
  const std::string file = scratch.write("job.sh", job);
  const auto exit_code = [&](const std::string& arguments) {
    const std::string quiet = " CHIMERA=true srun=true PATH=" + scratch.path("") + ":$PATH bash " + file;
    return WEXITSTATUS(std::system((quiet + arguments + " 2> /dev/null").c_str()));
  };
  EXPECT_EQ(exit_code(" --data x"), 2);
  EXPECT_NE(exit_code(" --data x --steps 5"), 2);
  EXPECT_NE(exit_code(" --steps=5"), 2);
}

TEST(PlanCommandTest, PlansTensorParallelismAndShardsByThemselves) {
  const json plan = planned(
      "plan --model llama-3-8b --workers 8 --mini-batch 16 --machine h100-80gb --schedules 1f1b --partition even --top "
      "0");
  EXPECT_TRUE(std::ranges::any_of(plan["candidates"], [](const json& each) { return each["tensor_parallel"] == 2; }));
  Words small =
      "plan --model llama-3-8b --workers 32 --mini-batch 64 --machine h100-80gb --schedules 1f1b --partition even "
      "--tensor-parallel 1 --stages 4 --top 1 --memory 50";
  const ProgramResult result = run_program(small);
  EXPECT_THAT(result.output, HasSubstr("memory is short, so the optimizer is sharded, as with --shard-optimizer"));
  small += "--sbatch -";
  EXPECT_THAT(run_program(small).output, HasSubstr(" --shard-optimizer "));
}

TEST(PlanCommandTest, NamesTheBenchmarkThatFitsAProfile) {
  const ProgramResult result = run_program(split("plan --machine {} --fit runs.toml", kP100));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.messages, HasSubstr("build/benchmarks/fit"));
}

}  // namespace
}  // namespace chimera::testing
