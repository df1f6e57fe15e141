#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "answers/playground.h"
#include "answers/schedule_request.h"
#include "check/check_schedule.h"
#include "core/json.h"
#include "generate/registry.h"
#include "schedule/schedule_json.h"
#include "simulate/simulate.h"
#include "support/paths.h"

namespace chimera::playground {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json ask(const json& request, const Progress& progress = nullptr) {
  return read_json(answer(json_text(request), progress));
}

std::string refusal(const json& request) {
  const json given = ask(request);
  return given.contains("error") ? given["error"].get<std::string>() : "";
}

json chimera44() { return {{"name", "chimera"}, {"stages", 4}, {"micro_batches", 4}}; }

/// One worker has its backward before the forward that it needs.
json stuck() { return {{"text", "0F0,0B0,0F1,0B1\n1B0,1F0,1F1,1B1\n"}}; }

std::string machine_text() {
  std::ifstream file(testing::source_path("/machines/p100-aries.json"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(PlaygroundTest, CatalogOffersEveryScheduleWithItsOwnParameters) {
  const json catalog = ask({{"do", "catalog"}});
  ASSERT_EQ(catalog["schedules"].size(), generators().size());
  for (std::size_t i = 0; i < generators().size(); ++i) {
    const Generator& generator = generators()[i];
    const json& entry = catalog["schedules"][i];
    EXPECT_EQ(entry["name"], generator.name);
    EXPECT_EQ(entry["parameters"].size(), generator.axes.size()) << generator.name;
    const json made = ask({{"do", "simulate"},
                           {"view", "totals"},
                           {"schedule",
                            {{"name", entry["name"]},
                             {"stages", entry["stages"]},
                             {"micro_batches", entry["micro_batches"]},
                             {"parameters", entry["parameters"]}}}});
    EXPECT_TRUE(made.contains("totals")) << made;
  }
}

TEST(PlaygroundTest, SimulatesAsTheProgramDoes) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  const CostModel costs = CostModel::uniform(schedule, {1, 2.5, 1.5, 1}, 0.25);
  const json totals = ask({{"do", "simulate"},
                           {"schedule", chimera44()},
                           {"costs", {{"forward", 1}, {"input_gradient", 1.5}, {"latency", 0.25}}}})["totals"];
  EXPECT_EQ(totals["makespan"], simulate(schedule, costs).makespan);
  EXPECT_EQ(totals["ops"], num_ops(schedule));
}

TEST(PlaygroundTest, FactorsOfStagesMakeTheirOpsLonger) {
  const auto makespan = [](const json& costs) {
    return ask({{"do", "simulate"},
                {"schedule", {{"name", "1f1b"}, {"stages", 2}, {"micro_batches", 1}}},
                {"costs", costs}})["totals"]["makespan"]
        .get<double>();
  };
  EXPECT_EQ(makespan(json::object()), 6);
  EXPECT_EQ(makespan({{"stage_factors", {1, 3}}}), 12);
}

TEST(PlaygroundTest, SliderMemoryIsInBytesAndVolumesAreCounts) {
  const json panel = ask({{"do", "simulate"}, {"schedule", chimera44()}, {"costs", {{"weights", 1e9}}}})["panel"];
  EXPECT_EQ(panel["inBytes"], true);
  EXPECT_EQ(panel["totals"]["messageVolume"], "24 tensors");
}

TEST(PlaygroundTest, MoreEffortFollowsASlowWorkerBetter) {
  const auto followed = [](std::int64_t effort) {
    return ask({{"do", "simulate"},
                {"schedule", {{"name", "chimera"}, {"stages", 8}, {"micro_batches", 8}}},
                {"slow", "2:2"},
                {"effort", effort}});
  };
  const json quick = followed(1'500'000);
  EXPECT_LT(followed(40'000'000)["totals"]["makespan"], quick["totals"]["makespan"]);
  EXPECT_LT(quick["totals"]["makespan"], quick["kept_makespan"]);
}

TEST(PlaygroundTest, AllReducesComeAfterTheOps) {
  const json totals =
      ask({{"do", "simulate"}, {"schedule", chimera44()}, {"costs", {{"all_reduce", 3}}}, {"sync", "post"}})["totals"];
  EXPECT_GT(totals["makespan"], totals["ops_end"]);
}

TEST(PlaygroundTest, RefusesWithAOneLineMessage) {
  EXPECT_THAT(answer("{"), HasSubstr("error"));
  EXPECT_THAT(refusal({{"do", "simulat"}}), HasSubstr("did you mean 'simulate'"));
  EXPECT_THAT(refusal({{"do", "simulate"}, {"schedule", {{"name", "chimer"}, {"stages", 4}, {"micro_batches", 4}}}}),
              HasSubstr("did you mean 'chimera'"));
  json schedule = chimera44();
  schedule["parameters"] = {{"wave", 2}};
  EXPECT_THAT(refusal({{"do", "simulate"}, {"schedule", schedule}}), HasSubstr("did you mean 'waves'"));
  schedule["parameters"] = {{"waves", 2}};
  EXPECT_THAT(refusal({{"do", "simulate"}, {"schedule", schedule}}),
              HasSubstr("waves does not apply to chimera, which takes pipelines"));
  schedule = chimera44();
  schedule["stages"] = 0;
  EXPECT_THAT(refusal({{"do", "simulate"}, {"schedule", schedule}}),
              HasSubstr("schedule chimera: stages must be even and at least 2, not 0"));
  EXPECT_THAT(refusal({{"do", "simulate"}, {"schedule", chimera44()}, {"costs", {{"foward", 1}}}}),
              AllOf(HasSubstr("foward"), HasSubstr("forward")));
  EXPECT_THAT(
      refusal({{"do", "simulate"}, {"schedule", {{"name", "1f1b"}, {"stages", 1000}, {"micro_batches", 1000}}}}),
      HasSubstr("more than the 1000000"));
  EXPECT_THAT(refusal({{"do", "export"}, {"schedule", chimera44()}, {"format", "pdf"}}), HasSubstr("pdf"));
}

TEST(PlaygroundTest, ExportsReadBackAsTheSameSchedule) {
  const std::string text = ask({{"do", "export"}, {"format", "json"}, {"schedule", chimera44()}})["text"];
  EXPECT_EQ(schedule_from_json(text, "test"), find_generator("chimera").generate({4, 4}));
  const json csv = ask({{"do", "export"}, {"format", "csv"}, {"schedule", {{"text", text}}}});
  EXPECT_TRUE(ask({{"do", "check"}, {"schedule", csv}})["report"]["valid"]);
}

TEST(PlaygroundTest, ADeadlockShowsWhoWaitsForWhomAndHowFarWorkersRun) {
  const json checked = ask({{"do", "check"}, {"schedule", stuck()}});
  EXPECT_FALSE(checked["report"]["valid"]);
  const json& violation = checked["report"]["violations"][0];
  EXPECT_EQ(violation["kind"], "cycle");
  EXPECT_EQ(violation["places"], json({{{"worker", 1}, {"position", 0}}, {{"worker", 1}, {"position", 1}}}));
  EXPECT_EQ(checked["visited"], json({1, 0}));
  EXPECT_EQ(checked["panel"]["workers"], 2);
  EXPECT_THAT(refusal({{"do", "simulate"}, {"schedule", stuck()}}), HasSubstr("1B0"));
}

TEST(PlaygroundTest, InvalidSchedulesHaveAPictureIfOpsHavePlaces) {
  const json missing = ask({{"do", "check"}, {"schedule", {{"text", "0F0,0B0,0F1\n"}}}});
  EXPECT_FALSE(missing["report"]["valid"]);
  EXPECT_TRUE(missing.contains("panel"));
  const std::string header =
      R"(# {"format": "chimera-schedule", "version": 1, "name": "x", "stages": 1, "micro_batches": 1, "replicas": )"
      R"([{"id": 0, "workers": [0]}]})";
  const json outside = ask({{"do", "check"}, {"schedule", {{"text", header + "\n0F0,0B0,7F9\n"}}}});
  EXPECT_FALSE(outside["report"]["valid"]);
  EXPECT_FALSE(outside.contains("panel"));
}

TEST(PlaygroundTest, LimitsAreChecked) {
  json request = {{"do", "check"}, {"schedule", ask({{"do", "export"}, {"format", "csv"}, {"schedule", chimera44()}})}};
  EXPECT_TRUE(ask(request)["report"]["valid"]);
  request["max_in_flight"] = 1;
  EXPECT_EQ(ask(request)["report"]["violations"][0]["kind"], "over_in_flight");
}

TEST(PlaygroundTest, SearchFindsAValidScheduleThatIsNoSlowerAndReportsItsProgress) {
  const json slow = {{"text", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\n"}};
  const json before = ask({{"do", "simulate"}, {"view", "totals"}, {"schedule", slow}})["totals"];
  std::vector<json> reports;
  const json found = ask({{"do", "search"}, {"schedule", slow}, {"iterations", 2000}, {"seed", 1}},
                         [&](const std::string& report) { reports.push_back(read_json(report)); });
  EXPECT_LT(found["makespan"], before["makespan"]);
  EXPECT_GE(found["makespan"], found["lower_bound"]);
  EXPECT_TRUE(ask({{"do", "check"}, {"schedule", found["schedule"]}})["report"]["valid"]);
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports.front().contains("makespan"));
}

TEST(PlaygroundTest, ModelIsPartitionedAndFitsWithRecomputation) {
  json request = {{"do", "model"},
                  {"model", "gpt2"},
                  {"schedule", {{"name", "1f1b"}, {"stages", 4}, {"micro_batches", 8}}},
                  {"micro_batch_size", 16},
                  {"partition", "3,3,4,2"}};
  const json plain = ask(request);
  EXPECT_EQ(plain["partition"], "3,3,4,2");
  EXPECT_EQ(plain["recompute"], "none");
  double flops = 0;
  for (const json& worker : plain["workers"]) flops += worker["flops"].get<double>();
  double stages = 0;
  for (const json& stage : plain["model"]["stages"]) {
    for (const char* part : {"forward_flops", "input_gradient_flops", "weight_gradient_flops"})
      stages += stage[part].get<double>();
  }
  EXPECT_NEAR(flops, 8 * stages, 1e-6 * flops);
  double most = 0;
  for (const json& worker : plain["workers"]) most = std::max(most, worker["peak_bytes"].get<double>());
  request["recompute"] = "auto";
  request["memory_bytes"] = 0.9 * most;
  const json tight = ask(request);
  EXPECT_NE(tight["recompute"], "none");
  for (const json& worker : tight["workers"]) EXPECT_LE(worker["peak_bytes"], 0.9 * most);
}

TEST(PlaygroundTest, APlannedCandidateOpensAsThePredictedStep) {
  const json plan = ask({{"do", "plan"},
                         {"model", "bert-48"},
                         {"workers", 8},
                         {"mini_batch", 64},
                         {"memory_bytes", 16e9},
                         {"machine", machine_text()},
                         {"schedules", {"chimera", "1f1b"}},
                         {"top", 3}});
  ASSERT_EQ(plan["open"].size(), plan["report"]["candidates"].size()) << plan;
  for (std::size_t i = 0; i < plan["open"].size(); ++i) {
    const json& open = plan["open"][i];
    const json& candidate = plan["report"]["candidates"][i];
    const json run = ask({{"do", "simulate"},
                          {"view", "totals"},
                          {"schedule", open["schedule"]},
                          {"costs", open["costs"]},
                          {"data_parallel", candidate["data_parallel"]}});
    const double seconds = candidate["step_seconds"];
    EXPECT_NEAR(run["totals"]["makespan"].get<double>(), seconds, 0.02 * seconds) << open["words"];
    EXPECT_LE(open["least_seconds"], seconds);
  }
}

}  // namespace
}  // namespace chimera::playground
