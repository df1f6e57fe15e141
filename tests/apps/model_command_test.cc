
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::StartsWith;

std::string model_output(const Words& arguments) { return output_of(arguments); }

TEST(ModelCommandTest, TextHasTablesOfLayersAndStagesAndBars) {
  EXPECT_EQ(model_output("model gpt2-tiny --stages 2 --micro-batch-size 1 --sequence 64"),
            read_file(testing::source_path("/tests/golden/model-gpt2-tiny.txt")));
}

TEST(ModelCommandTest, JsonHasTheFieldsOfEveryStage) {
  const json report = read_json(model_output("model gpt2-64 --stages 32 --format json"));
  EXPECT_EQ(report["parameters"], 1'389'327'360);
  EXPECT_EQ(report["micro_batch_size"], 4);
  EXPECT_EQ(report["sequence"], 128);
  ASSERT_EQ(report["stages"].size(), 32U);
  std::int64_t parameters = 0;
  EXPECT_EQ(report["optimizer"], "adamw");
  EXPECT_TRUE(report["stages"][7]["weights_bytes"].is_number_integer());
  EXPECT_TRUE(report["stages"][7]["working_set_bytes"]["F"].is_number_integer());
  EXPECT_TRUE(report["layer_kinds"]["block"]["forward_flops"].is_number_integer());
  for (const json& stage : report["stages"]) parameters += stage["parameters"].get<std::int64_t>();
  EXPECT_EQ(parameters, 1'389'327'360);
  const json& inner = report["stages"][7];
  const json& block = report["layer_kinds"]["block"];
  constexpr double kBoundary = 4.0 * 4 * 128 * 1280;
  EXPECT_EQ(inner["layers"], 2);
  EXPECT_EQ(inner["boundary_bytes"], kBoundary);
  EXPECT_EQ(inner["activations_bytes"], 2 * block["activations_bytes"].get<double>() + kBoundary);
  EXPECT_EQ(inner["deferred_bytes"], 2 * block["deferred_bytes"].get<double>());
  EXPECT_EQ(inner["forward_flops"], 2 * block["forward_flops"].get<double>());
  EXPECT_EQ(inner["optimizer_bytes"], 2 * inner["weights_bytes"].get<double>());
  for (const char* op : {"F", "B", "I", "W"}) EXPECT_GT(inner["working_set_bytes"][op], 0) << op;
}

TEST(ModelCommandTest, AScheduleShowsWhatItsWorkersHold) {
  const Words words = "model gpt2-tiny --stages 4 --schedule chimera";
  Words fields = words + "--format json";
  const json report = read_json(model_output(fields));
  ASSERT_EQ(report["workers"].size(), 4U);
  const json& first = report["workers"][0];
  EXPECT_EQ(first["stages"], json::array({0, 3}));
  double held = 0;
  for (const std::size_t stage : {0U, 3U}) {
    for (const char* bytes : {"weights_bytes", "gradients_bytes", "optimizer_bytes"})
      held += report["stages"][stage][bytes].get<double>();
  }
  EXPECT_EQ(first["held_bytes"], held);
  EXPECT_GT(first["peak_bytes"], held);
  EXPECT_THAT(model_output(words), HasSubstr("\nworker  stages "));
}

TEST(ModelCommandTest, TypeAndOptimizerDecideTheBytesPerParameter) {
  const auto stage = [](const std::string& dtype, const std::string& optimizer) {
    return read_json(
        model_output(split("model gpt2-tiny --dtype {} --optimizer {} --format json", dtype, optimizer)))["stages"][0];
  };
  const double parameters = 298'368;
  EXPECT_EQ(stage("float64", "adamw")["optimizer_bytes"], 16 * parameters);
  EXPECT_EQ(stage("float32", "sgd")["optimizer_bytes"], 0);
  EXPECT_LT(stage("float32", "muon")["optimizer_bytes"], stage("float32", "adamw")["optimizer_bytes"]);
  EXPECT_EQ(stage("bfloat16", "sgd")["gradients_bytes"], 4 * parameters);
  EXPECT_LT(stage("bfloat16", "sgd")["activations_bytes"], stage("float32", "sgd")["activations_bytes"]);
}

TEST(ModelCommandTest, AShortModelIsCountedAtAllPositions) {
  const Scratch scratch;
  const std::string name = scratch.write("short.toml",
                                         "family = 'bert'\nlayers = 2\nhidden = 8\nheads = 2\nfeed_forward = 32\n"
                                         "vocabulary = 90\npositions = 16\ntied = true\n");
  EXPECT_EQ(read_json(model_output(split("model {} --format json", name)))["sequence"], 16);
}

TEST(ModelCommandTest, DrawsABarPerStage) {
  const std::string svg = model_output("model bert-48 --stages 4 --format svg");
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("<title>stage 3, optimizer: 1.375 GiB</title>"));
}

TEST(ModelCommandTest, RefusesInvalidWorkloads) {
  const std::vector<Refusal> refusals = {
      {"model gpt2 --sequence 1025", {"1025 tokens", "1024 positions"}},
      {"model gpt2 --sequence 0", {"--sequence must be 1 to 1000000000, not 0"}},
      {"model gpt2 --micro-batch-size -4", {"--micro-batch-size must be 1 to 1000000000, not -4"}},
      {"model gpt2 --dtype float31", {"'float31'", "'float32'"}},
      {"model gpt2 --dropout 1", {"--dropout must be below 1"}},
  };
  for (const Refusal& refusal : refusals) expect_refusal(refusal);
}

}  // namespace
}  // namespace chimera::testing
