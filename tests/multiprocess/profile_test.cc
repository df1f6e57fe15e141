
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "support/paths.h"
#include "support/refusal.h"
#include "training.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kP100File = testing::source_path("/machines/p100-aries.json");

TEST(TrainingProfileTest, MeasuresWhatItReads) {
  const Scratch scratch;
  const std::string here = scratch.path("here.json");
  const ProgramResult result = succeeded(run_program(split(
      "profile --model gpt2-tiny,bert-tiny --micro-batch-sizes 1,2 --sequence 16 --seconds 0.2 --name here --output {}",
      here)));
  EXPECT_THAT(result.output, HasSubstr("bert-tiny    head              2"));
  const json machine = read_json(read_file(here));
  const bool shares = machine["cores"] > 1;  // two ranks share layers
  ASSERT_EQ(machine["layers"].size(), shares ? 12U : 6U);
  if (shares) {
    EXPECT_EQ(machine["layers"][7]["tensor_parallel"], 2);
    EXPECT_GT(machine["layers"][7]["times"][1]["forward"], 1e-6);
    EXPECT_GT(machine["op_sum"]["alpha"].get<double>() + machine["op_sum"]["beta"].get<double>(), 0);
    EXPECT_THAT(result.output, HasSubstr("block / 2 "));
    EXPECT_THAT(result.output, HasSubstr("sums inside ops"));
  }
  const json& block = machine["layers"][1];
  EXPECT_EQ(block["kind"], "block");
  EXPECT_EQ(block["model"]["hidden"], 64);
  ASSERT_EQ(block["times"].size(), 2U);
  for (const char* part : {"forward", "input_gradient", "weight_gradient"}) {
    EXPECT_GT(block["times"][1][part], 1e-6) << part;
    EXPECT_LT(block["times"][1][part], 1) << part;
  }
  EXPECT_GT(machine["point_to_point"]["within_node"]["alpha"], 0);
  EXPECT_GT(machine["all_reduce"]["within_node"]["beta"], 0);
  EXPECT_GT(machine["optimizer_seconds"], 0);
  EXPECT_GT(machine["op_overhead"], 0);
  EXPECT_GE(machine.at("core_sharing"), 0);
  EXPECT_LT(machine.at("core_sharing"), 1) << "turns cost less than the work";
  EXPECT_THAT(result.output, HasSubstr("shared cores "));
  EXPECT_GE(machine["contention"].at("idle_gain"), 0);
  EXPECT_THAT(result.output, HasSubstr("idle cores "));
  for (const char* type : {"float32", "float64"}) EXPECT_GT(machine["matrix_flops"][type], 1e8) << type;
  EXPECT_GT(machine["matrix_flops"]["float32"], machine["matrix_flops"]["float64"]);
  EXPECT_FALSE(result.left_files);

  const std::string merged = output_of(split("profile --merge {} {} --name both --format json", here, here));
  EXPECT_EQ(read_json(merged)["name"], "both");
  EXPECT_EQ(read_json(merged)["layers"].size(), machine["layers"].size());
}

TEST(TrainingProfileTest, AModelOfFewPositionsIsMeasuredAndPlannedWithThem) {
  const Scratch scratch;
  const std::string model = scratch.write("short.toml",
                                          "family = \"gpt2\"\nlayers = 2\nhidden = 32\nheads = 4\n"
                                          "vocabulary = 256\npositions = 16\nfeed_forward = 128\ntied = true\n");
  const std::string here = scratch.path("here.json");
  succeeded(run_program(
      split("profile --model {} --micro-batch-sizes 1,2 --seconds 0.1 --tensor-parallel 1 --output {}", model, here)));
  EXPECT_EQ(read_json(read_file(here))["layers"][0]["sequence"], 16);
  succeeded(run_program(split("plan --model {} --workers 2 --mini-batch 4 --machine {}", model, here)));
}

TEST(TrainingProfileTest, MeasuresTheLinksBetweenTwoHosts) {
  const Scratch scratch;
  const std::string cluster = scratch.path("cluster.json");
  EXPECT_THAT(output_of(split("launch --nproc 2 -- profile --between {} --seconds 0.2 --name both --output {}",
                              kP100File, cluster)),
              HasSubstr("line - sums"));
  json machine = read_json(read_file(cluster));
  json before = read_json(read_file(kP100File));
  EXPECT_EQ(machine["name"], "both");
  for (const char* links : {"point_to_point", "all_reduce"}) {
    EXPECT_EQ(machine[links]["within_node"], before[links]["within_node"]);
    EXPECT_NE(machine[links]["between_nodes"], before[links]["between_nodes"]);
    EXPECT_GT(machine[links]["between_nodes"]["beta"], 0);
  }
  EXPECT_EQ(machine["workers_per_node"], before["workers_per_node"]) << "its workers share no cores";
  EXPECT_EQ(machine["sources"].size(), before["sources"].size() + 1);
}

TEST(ProfileRefusalTest, Flags) {
  for (const auto& [flags, words] : std::vector<Refusal>{
           {"--model gpt3", {"unknown model 'gpt3'", "gpt2"}},
           {"--sequence 4096", {"--sequence 4096 is more than the 1024 positions of model 'gpt2-mini'"}},
           {"--sequence 0", {"--sequence 0", "at least 1"}},
           {"--micro-batch-sizes 4,2", {"--micro-batch-sizes: give ascending whole numbers"}},
           {"--tensor-parallel 4096", {"--tensor-parallel 4096: only"}},
           {"--tensor-parallel 0", {"--tensor-parallel 0: give whole numbers from 1 on"}},
           {"--micro-batch-sizes 0", {"--micro-batch-sizes: give ascending whole numbers"}},
           {"--threads 100000", {"--threads 100000", "cores"}},
           {"--dtype float16", {"float16"}},
           {"--seconds -1", {"--seconds: '-1' is not a number of at least 0"}},
           {split("--merge {} {} --threads 1", kP100File, kP100File), {"--threads: --merge measures nothing"}},
           {{"--merge", kP100File}, {"a single profile needs no merging"}},
           {{"--merge", kP100File, testing::source_path("/machines/v100-nvlink.json")},
            {"differ in workers_per_node: 1 and 8"}},
           {{"--between", kP100File}, {"--between measures from one host to another", "chimera launch --hosts a,b"}},
           {{"--between", kP100File, "--merge", kP100File, kP100File},
            {"--hosts, --between and --merge are three ways to a profile"}},
           {"--interface lo", {"--interface belongs to --hosts or --between"}},
           {{"--merge", kP100File, "missing.json"}, {"missing.json: cannot be read"}},
       }) {
    expect_refusal({Words{"profile"} + flags, words});
  }
}

TEST(ValidateRefusalTest, NamesTheBenchmark) {
  expect_refusal({.arguments = "bench --validate", .words = {"build/benchmarks/validate"}});
}

}  // namespace
}  // namespace chimera::testing
