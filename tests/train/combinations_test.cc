#include "train/setup/combinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"
#include "support/training.h"
#include "train/setup/rerouted_job.h"

namespace chimera {
namespace {

/// A way to give a main feature.
struct MainFeature {
  std::string name;  // As in combinations_json()
  std::function<void(TrainOptions&)> give;
};

const std::vector<MainFeature>& main_features() {
  static const std::vector<MainFeature> features = {
      {"`--tensor-parallel` above 1", [](TrainOptions& o) { o.parallel.tensor_parallel = 2; }},
      {"`--slices` above 1", [](TrainOptions& o) { o.schedule.shape.slices = 2; }},
      {"asynchronous schedules",
       [](TrainOptions& o) {
         o.schedule.name = "pipedream";
         o.checkpoint.every = {.steps = 5, .seconds = 0};
       }},
      {"`--overlap-pairs`",
       [](TrainOptions& o) {
         if (o.schedule.name == "1f1b" && o.schedule.shape.slices == 1) o.schedule.name = "dualpipe";
         o.schedule.pairs = Pairs::Together;
       }},
      {"`--optimizer muon`", [](TrainOptions& o) { o.updates.optimizer.kind = OptimizerKind::Muon; }},
      {"`--optimizer lamb`", [](TrainOptions& o) { o.updates.optimizer.kind = OptimizerKind::Lamb; }},
      {"`--shard-optimizer`", [](TrainOptions& o) { o.memory.shard_optimizer = true; }},
      {"`--reduction canonical`", [](TrainOptions& o) { o.numbers.reduction = ReductionOrder::Canonical; }},
      {"`--max-restarts`",
       [](TrainOptions& o) {
         o.recovery.max_restarts = 1;
         o.checkpoint.folder = "saves";
       }},
      {"`--recover twin`", [](TrainOptions& o) { o.recovery.recover = Recover::Twin; }},
      {"`--recover reroute`", [](TrainOptions& o) { o.recovery.recover = Recover::Reroute; }},
      {"`--on-different-copies repair`",
       [](TrainOptions& o) { o.recovery.different_copies = DifferentCopies::Repair; }},
      {"`--adapt all`",
       [](TrainOptions& o) {
         o.schedule.adapt = Adapt::All;
         if (!o.recovery.outlives_ranks()) o.recovery.recover = Recover::Twin;
       }},
      {"`--offload`", [](TrainOptions& o) { o.memory.offload = {StageRule::Full}; }},
      {"`--dropout`", [](TrainOptions& o) { o.model.dropout = 0.1; }},
      {"`--documents split`", [](TrainOptions& o) { o.data.documents = Documents::Split; }},
      {"`--transport threads`", [](TrainOptions& o) { o.device.transport = TransportKind::Threads; }},
      {"`--device cuda`", [](TrainOptions& o) { o.device.kind = DeviceKind::Cuda; }},
      {"`--cuda-graphs`",
       [](TrainOptions& o) {
         o.device.kind = DeviceKind::Cuda;
         o.numbers.cuda_graphs = true;
       }},
      {"`--op-graphs`",
       [](TrainOptions& o) {
         o.device.kind = DeviceKind::Cuda;
         o.numbers.op_graphs = true;
       }},
      {"`--trace`, `--op-times`, `--timeline`, `--report`", [](TrainOptions& o) { o.output.report = "report.html"; }},
  };
  return features;
}

/// Returns the name with all that it implies.
std::set<std::string> with_implied(const nlohmann::ordered_json& table, const std::string& name) {
  std::set<std::string> all = {name};
  for (const auto& feature : table.at("features")) {
    if (feature.at("name").get<std::string>() != name) continue;
    for (const auto& implied : feature.at("implies")) all.merge(with_implied(table, implied.get<std::string>()));
  }
  return all;
}

/// Returns whether the page says that a run refuses both features.
bool is_refused(const nlohmann::ordered_json& table, const std::string& one, const std::string& two) {
  std::set<std::string> both = with_implied(table, one);
  both.merge(with_implied(table, two));
  for (const auto& row : table.at("refused")) {
    bool has_all = true;
    for (const auto& name : row.at("features")) has_all = has_all && both.contains(name.get<std::string>());
    if (has_all) return true;
  }
  return false;
}

/// A model of four copies of each stage that all main features fit.
TrainOptions options_with_both(const MainFeature& one, const MainFeature& two) {
  TrainOptions options = testing::small_options("llama-tiny", "1f1b", {2, 4});
  options.model.overrides = {.layers = 8, .hidden = 16, .heads = 4, .key_value_heads = 2};
  options.parallel.data_parallel = 4;
  one.give(options);
  two.give(options);
  ScheduleOptions& schedule = options.schedule;
  if (schedule.shape.slices > 1 && schedule.name != "1f1b") {  // Only a file can have slices then
    Schedule given = find_generator(schedule.name).generate({.stages = 2, .micro_batches = 4});
    given.slices = 2;
    schedule.given = std::make_shared<const Schedule>(std::move(given));
  }
  return options;
}

/// Returns the message of the refusal; empty if the job can be prepared, as far as it needs no GPU and no data.
std::string preparation_error(const TrainOptions& options) {
  try {
    Job job = partition_job(resolve_job(options));
    lower_programs(job);
    if (options.recovery.outlives_ranks()) static_cast<void>(spare_patience(job));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The page is right about each pair of main features.
TEST(CombinationsTest, MainFeaturesGoTogetherAsThePageSays) {
  const nlohmann::ordered_json table = combinations_json();
  std::size_t count = 0;
  for (const auto& feature : table.at("features")) count += feature.at("main").get<bool>() ? 1U : 0U;
  ASSERT_EQ(count, main_features().size());
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(table.at("features")[i].at("name").get<std::string>(), main_features()[i].name);
    for (std::size_t j = 0; j < i; ++j) {
      const MainFeature& one = main_features()[i];
      const MainFeature& two = main_features()[j];
      const std::string refusal = preparation_error(options_with_both(one, two));
      EXPECT_EQ(!refusal.empty(), is_refused(table, one.name, two.name))
          << one.name << " and " << two.name << ": " << refusal;
    }
  }
}

TEST(CombinationsTest, EachRowHasAReasonAndARemedy) {
  for (const auto& row : combinations_json().at("refused")) {
    EXPECT_GE(row.at("features").size(), 2U) << row;
    EXPECT_THAT(row.at("why").get<std::string>(), ::testing::StartsWith("--"));
    EXPECT_FALSE(row.at("instead").get<std::string>().empty());
  }
}

TEST(CombinationsTest, AnotherLauncherNeitherRestartsNorReplacesRanks) {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {2, 2});
  options.device.launcher = "torchrun";
  EXPECT_EQ(preparation_error(options), "");
  options.recovery.recover = Recover::Twin;
  EXPECT_THAT(preparation_error(options),
              ::testing::StartsWith("--recover twin: torchrun has started the ranks and ends"));
  options.recovery.recover = Recover::Restart;
  options.recovery.max_restarts = 1;
  options.checkpoint.folder = "saves";
  EXPECT_EQ(preparation_error(options),
            "--max-restarts: torchrun has started the ranks, and would have to start them again");
}

}  // namespace
}  // namespace chimera
