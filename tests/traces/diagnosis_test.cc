#include "traces/diagnosis.h"
#include "core/files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "check/check_schedule.h"
#include "generate/registry.h"
#include "schedule/schedule_csv.h"
#include "simulate/costs_json.h"
#include "simulate/simulate.h"
#include "traces/torch_trace.h"

namespace chimera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TraceDiagnosis diagnosis_of(const Schedule& schedule, const CostModel& costs, double search_seconds = 0) {
  const auto texts = testing::torch_traces(schedule, costs);
  return diagnose_trace(join_ranks(testing::read_texts(texts)), search_seconds);
}

Schedule looped() {
  return find_generator("interleaved-1f1b").generate({.stages = 2, .micro_batches = 8, .chunks = 2});
}

TEST(TraceDiagnosisTest, PredictsOtherSchedulesOfTheSameModel) {
  const CostModel costs = testing::uneven_costs(4);
  const TraceDiagnosis diagnosis = diagnosis_of(looped(), costs);
  const auto zb_v = std::ranges::find_if(diagnosis.better, [](const auto& b) { return b.schedule.name == "zb-v"; });
  ASSERT_NE(zb_v, diagnosis.better.end());
  CostModel known = costs;  // The trace's operators say that weight gradients are two fifths
  known.stages[0].weight_gradient = known.stages[0].backward;
  known.stages[0].input_gradient = 0;
  EXPECT_NEAR(zb_v->seconds, simulate(zb_v->schedule, known).makespan + 0.005, 0.01 * zb_v->seconds);
  EXPECT_TRUE(zb_v->within_memory);
  EXPECT_TRUE(zb_v->runs_in_torch);
  EXPECT_TRUE(zb_v->splits_backward);
  for (const BetterSchedule& better : diagnosis.better) {
    EXPECT_THAT(check(better.schedule), IsEmpty()) << better.schedule.name;
    EXPECT_LT(better.seconds, diagnosis.simulated.makespan);
    if (better.within_memory) EXPECT_LE(better.peak_units, 2.5 + 1e-9) << better.schedule.name;
    if (better.replicas > 1) EXPECT_FALSE(better.runs_in_torch || better.within_memory);
  }
}

TEST(TraceDiagnosisTest, StepsOfRanksThatEndEarlyOverlap) {
  const Schedule schedule = find_generator("zb-h1").generate({.stages = 2, .micro_batches = 4});
  CostModel costs;
  costs.stages = {{0.01, 0.012, 0.002, 0.01}, {0.01, 0.022, 0.011, 0.011}};
  const Timeline timeline = simulate(schedule, costs);
  double longest = 0;
  for (const WorkerTimeline& worker : timeline.workers)
    longest = std::max(longest, worker.ops.back().end - worker.ops.front().start);
  ASSERT_LT(longest + 0.004, timeline.makespan);
  for (const double between : {longest - timeline.makespan, 0.004}) {
    const auto texts = testing::torch_traces(schedule, costs, {.steps = 4, .between = between});
    const TraceDiagnosis diagnosis = diagnose_trace(join_ranks(testing::read_texts(texts)), 0);
    EXPECT_EQ(diagnosis.trace.steps_overlap, between < 0);
    EXPECT_NEAR(diagnosis.trace.step_seconds(), timeline.makespan + between, 1e-5);
    EXPECT_NEAR(diagnosis.simulated.period, timeline.makespan + between, 0.003 * timeline.makespan);
  }
}

TEST(TraceDiagnosisTest, SearchesAnOrderWithinTheMemoryOfTheTrace) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 4});
  const TraceDiagnosis diagnosis = diagnosis_of(schedule, testing::uneven_costs(2), 0.05);
  std::vector<std::string> names;
  for (const BetterSchedule& better : diagnosis.better) names.push_back(better.schedule.name);
  EXPECT_THAT(names, Contains("searched order"));
}

TEST(TraceDiagnosisTest, NamesOutliers) {
  CostModel costs = testing::uneven_costs(2);
  costs.stages[1].forward *= 2;
  costs.stages[1].backward *= 2;
  const Schedule schedule = find_generator("1f1b").generate({.stages = 2, .micro_batches = 4});
  const TraceDiagnosis diagnosis = diagnosis_of(schedule, costs);
  EXPECT_THAT(diagnosis.findings, Contains(HasSubstr("stage 1 takes 1.3")));
  EXPECT_LT(diagnosis.even_seconds, 0.85 * diagnosis.simulated.makespan);
  const std::string text = to_text(diagnosis);
  for (const char* part : {"what ran: 1f1b, 2 workers (ranks 0, 1), 2 stages, 4 micro-batches", "3 steps: median 0.",
                           "rank 0 waits ", "a message takes 0.0", "replay: with these costs a simulated step takes"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("unexplained")));
}

TEST(TraceDiagnosisTest, CutsStagesEvenly) {
  const CostModel costs = testing::uneven_costs(4);
  const CostModel two = costs_of_cut(costs, 2);
  EXPECT_DOUBLE_EQ(two.stages[0].forward, costs.stages[0].forward + costs.stages[1].forward);
  EXPECT_DOUBLE_EQ(costs_of_cut(costs, 2, {0.001, 0, 0, 0}).stages[0].forward, two.stages[0].forward - 0.001);
  CostModel first = costs;
  first.stages[0].input_gradient = 0;
  EXPECT_EQ(costs_of_cut(first, 2).stages[0].input_gradient, 0);
  EXPECT_DOUBLE_EQ(costs_of_cut(first, 2).stages[0].weight_gradient, two.stages[0].backward);
  const CostModel eight = costs_of_cut(costs, 8);
  EXPECT_DOUBLE_EQ(eight.stages[7].weight_gradient, costs.stages[3].weight_gradient / 2);
}

TEST(TraceDiagnosisTest, WritesFilesThatReadBack) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "diagnosis";
  std::filesystem::remove_all(folder);
  const TraceDiagnosis diagnosis = diagnosis_of(looped(), testing::uneven_costs(4));
  write_diagnosis(diagnosis, folder.string());
  const auto read = [&](const std::string& name) {
    return schedule_from_text(read_whole((folder / name).string()), name).schedule;
  };
  EXPECT_EQ(read("ran.csv").workers, looped().workers);
  for (std::size_t i = 0; i < diagnosis.better.size(); ++i) {
    const BetterSchedule& better = diagnosis.better[i];
    EXPECT_EQ(read(fmt::format("better-{}.{}", i + 1, better.runs_in_torch ? "csv" : "json")).workers,
              better.schedule.workers);
  }
  std::ifstream file(folder / "costs.json");
  const std::string costs(std::istreambuf_iterator<char>(file), {});
  EXPECT_NEAR(costs_from_json(costs, "costs.json", 4).stages[3].forward, 0.0115, 2e-4);
  EXPECT_TRUE(std::filesystem::exists(folder / "timeline.html"));
  std::filesystem::remove_all(folder);
}

TEST(TraceDiagnosisTest, JsonHasTheMeasuredTimeline) {
  const auto json = to_json(diagnosis_of(looped(), testing::uneven_costs(4)));
  EXPECT_EQ(json["name"], "interleaved-1f1b");
  EXPECT_EQ(json["steps"].size(), 3U);
  EXPECT_EQ(json["timeline"]["workers"].size(), 2U);
  EXPECT_NEAR(json["difference"].get<double>(), 0, 0.01);
  double sum = 0;
  for (const auto& [name, seconds] : json["parts"][0].items()) {
    if (name != "rank" && name != "gaps_in_ops") sum += seconds.get<double>();
  }
  EXPECT_NEAR(sum, json["step_seconds"].get<double>(), 1e-3);
}

}  // namespace
}  // namespace chimera
