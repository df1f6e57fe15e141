// `chimera simulate` with costs from a file.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Words simulate(const Words& more) { return "simulate chimera --stages 2 --micro-batches 2" + more; }

json report(const Words& more, const std::string& input = "") {
  return read_json(output_of(simulate(more) + "--format json", input));
}

json costs() {
  const json stage = {{"forward", 1}, {"input_gradient", 1}, {"weight_gradient", 1}};
  return {{"latency", 0}, {"stages", {stage, stage}}};
}

TEST(SimulateShapeTest, AcceptsWholeNumbersInScientificNotation) {
  const ProgramResult result = run_program("simulate 1f1b --stages 4 --micro-batches 1.6e1 --format json");
  EXPECT_EQ(read_json(result.output)["makespan"], 57) << result.messages;
}

TEST(SimulateWithoutTest, TellsHowMuchLongerAStepTakes) {
  const Words words = "simulate chimera-zb --stages 8 --micro-batches 16 --without 1";
  const auto output = [&](const Words& more) {
    Words all = words + more;
    return output_of(all);
  };
  EXPECT_THAT(output({}), HasSubstr("makespan 97, 1.90 times the healthy 51"));
  EXPECT_THAT(output("--data-parallel 4"), HasSubstr("makespan 58, 1.14 times the healthy 51"));
  EXPECT_THAT(output("--extra-copies 2"), HasSubstr("extra copy: stage "));
  EXPECT_THAT(output("--format svg"), HasSubstr(">lost<"));
  const json report = read_json(output("--format json"));
  EXPECT_EQ(report["workers"][1]["lost"], true);
  EXPECT_FALSE(report["workers"][0].contains("lost"));
}

TEST(SimulateWithoutTest, ItsScheduleSurvivesAFile) {
  const Words words = "chimera-zb --stages 4 --micro-batches 8 --without 1,6 --data-parallel 2";
  Words schedule = "schedule --format json" + words;
  const std::string file = run_program(schedule).output;
  EXPECT_THAT(run_program("check -", file).output, HasSubstr("valid: chimera-zb, 4 stages, 16 micro-batches"));
  Words simulate = "simulate --format json" + words;
  json report = read_json(run_program(simulate).output);
  EXPECT_EQ(report["bound"], 49);
  report.erase("bound");
  EXPECT_EQ(read_json(run_program("simulate --file - --format json", file).output), report);
}

TEST(SimulateSlowTest, OthersTakeAPart) {
  const Words shape = "--stages 8 --micro-batches 16 --latency 0.05";
  const auto output = [&](Words words) {
    words += shape;
    return output_of(words);
  };
  EXPECT_THAT(output("simulate chimera-zb --slow 0:2"), HasSubstr("the busiest worker needs 66;"));
  const json slow = read_json(output("simulate chimera-zb --slow 0:2 --format json"));
  EXPECT_EQ(slow["bound"], 66);
  EXPECT_LE(slow["makespan"], 1.29 * 52.9);
  EXPECT_GE(slow["kept_makespan"], 1.7 * 52.9);
  EXPECT_GT(slow["workers"][7]["ops"].size(), slow["workers"][0]["ops"].size());
  const Words json_of = "simulate chimera-zb --format json";
  const auto with = [&](const Words& more) {
    Words words = json_of + more;
    return output(words);
  };
  EXPECT_EQ(with("--slow 3:inf"), with("--without 3"));
  EXPECT_EQ(read_json(with("--slow 0:1.5,3:2"))["workers"].size(), 8U);
  EXPECT_EQ(read_json(with("--without 3")).count("kept_makespan"), 0U);
}

TEST(SimulateSlowTest, SchedulesWithSlowWorkersAreFiles) {
  const ProgramResult made =
      run_program("schedule 1f1b --stages 4 --micro-batches 8 --slow 1:2 --data-parallel 2 --format json");
  EXPECT_THAT(run_program("check -", made.output).output, HasSubstr("valid: 1f1b, 4 stages, 16 micro-batches"));
  expect_refusal({"schedule 1f1b --stages 4 --micro-batches 4 --slow 1", {"--slow: '1' is not WORKER:FACTOR"}});
  expect_refusal({"schedule 1f1b --stages 4 --micro-batches 4 --slow 1:0.5", {"--slow", "0.5"}});
  expect_refusal({"simulate 1f1b --stages 4 --micro-batches 4 --slow 4:2", {"--slow 4:2", "there is no worker 4"}});
}

TEST(SimulatePermuteTest, HeavyMicroBatchesStandWhereTheyCostLeast) {
  json unequal = costs();
  unequal["micro_batches"] = {3, 0.5, 0.5, 0.5, 0.5, 1, 1, 1};
  const auto made = [&](const Words& more) {
    return read_json(
        output_of("simulate 1f1b --stages 2 --micro-batches 8 --costs - --format json" + more, json_text(unequal)));
  };
  const json permuted = made({"--permute-micro-batches"});
  EXPECT_LT(permuted["makespan"], made({})["makespan"]);
  std::vector<std::int64_t> places = permuted["micro_batch_of_place"];
  json again = unequal;
  for (std::size_t id = 0; id < places.size(); ++id)
    again["micro_batches"][id] = unequal["micro_batches"][static_cast<std::size_t>(places[id])];
  std::swap(again, unequal);
  EXPECT_EQ(made({})["makespan"], permuted["makespan"]);
  expect_refusal({"simulate 1f1b --stages 2 --micro-batches 2 --permute-micro-batches",
                  {"--permute-micro-batches", "micro_batches in --costs FILE"}});
}

TEST(SimulateWithoutTest, BadLossesAreRefused) {
  const Words shape = "--stages 4 --micro-batches 4";
  const auto refuse = [&](const Words& words, const std::vector<std::string>& expected) {
    expect_refusal({words + shape, expected});
  };
  refuse("simulate chimera --without 4", {"--without 4", "there is no worker 4", "0 to 3"});
  refuse("schedule chimera --without 1,2", {"--without 1,2", "no worker is left that holds stages 1, 2"});
  refuse("schedule 1f1b --without 0", {"no worker is left that holds stage 0"});
  refuse("simulate pipedream --without 0", {"asynchronous"});
  refuse("simulate chimera --without two", {"--without"});
  refuse("schedule chimera --extra-copies 1", {"--extra-copies", "--without"});
  refuse("schedule chimera --effort 9", {"--effort", "--without"});
  refuse("schedule chimera --data-parallel 2", {"--data-parallel", "--without"});
}

TEST(SimulateCostsTest, MayDifferByStage) {
  EXPECT_EQ(report("--costs -", json_text(costs())), report({}));
  json slow = costs();
  slow["stages"][1]["forward"] = 3;
  EXPECT_EQ(report("--costs -", json_text(slow))["makespan"], 8);
}

TEST(SimulateCostsTest, WorkersAndMicroBatchesHaveFactors) {
  json factors = costs();
  const auto made = [&](const char* name, const json& list, const Words& more = {}) {
    factors[name] = list;
    return report("--costs -" + more, json_text(factors))["makespan"].get<double>();
  };
  const double healthy = made("workers", {1, 1});
  EXPECT_EQ(made("micro_batches", {1, 1}), healthy);
  EXPECT_EQ(made("workers", {2, 2}), 2 * healthy);
  EXPECT_EQ(made("micro_batches", {3, 3}), 6 * healthy);
  EXPECT_EQ(made("micro_batches", {3, 3}, {"--steps", "2"}), 12 * healthy);
  for (const char* name : {"workers", "micro_batches"}) {
    json wrong = costs();
    wrong[name] = {1, 1, 1, 1};
    const ProgramResult refused = run_program(simulate("--costs -"), json_text(wrong));
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.messages, HasSubstr(std::string(name) + " has 4 entries; expected 2"));
  }
}

TEST(SimulateCostsTest, StandardInputIsReadOnceForSeveralSchedulesAndOrders) {
  const Words twice[] = {"simulate chimera-zb", {"sweep", "--schedules", "1f1b,zb-h1"}};
  for (Words words : twice) {
    words += "--stages 2 --micro-batches 4 --costs -";
    succeeded(run_program(words, json_text(costs())));
  }
}

Words sliced(const Words& more) { return "simulate 1f1b --stages 8 --micro-batches 16" + more; }

TEST(SimulateSlicesTest, SlicesOfEqualTimesAreTheDefault) {
  const auto makespan = [](Words more) {
    more += "--format json";
    return read_json(output_of(sliced(more), ""))["makespan"].get<double>();
  };
  EXPECT_EQ(makespan({}), 69);
  EXPECT_DOUBLE_EQ(makespan("--slices 4 --attention 0.5"), 53.25);
  EXPECT_DOUBLE_EQ(makespan("--slices 4 --attention 0.5 --slice-lengths equal"), 72.09375);
  EXPECT_DOUBLE_EQ(makespan("--slices 2 --slice-lengths 512,512"), 58.5);
}

TEST(SimulateSlicesTest, ReportsFlagsWithoutEffect) {
  const auto said = [](const Words& more) { return run_program(sliced(more), "").messages; };
  const std::string attention = "chimera: --attention has no effect without --slices\n";
  EXPECT_EQ(said("--attention 0.5"), attention);
  EXPECT_EQ(said("--slice-lengths equal"), "chimera: --slice-lengths has no effect without --slices\n");
  EXPECT_EQ(said("--slices 2 --attention 0.5 --slice-lengths equal"), "");
  EXPECT_EQ(said("--pair-time 0.8"),
            "chimera: --pair-time has no effect: no schedule has pairs; --pairs neighbors makes them\n");
  EXPECT_EQ(said("--pair-time 0.8 --pairs neighbors"), "");
  EXPECT_EQ(run_program("sweep --stages 2 --micro-batches 2 --attention 0,0.5").messages, attention);
  expect_refusal({"sweep --schedules 1f1b,gpipe --stages 4 --micro-batches 4 --chunks 2",
                  {"--chunks applies to none of 1f1b, gpipe"}});
}

TEST(SimulateSlicesTest, ASweepHasAColumnOfSlices) {
  const auto head = [](const Words& more) {
    const std::string result = output_of("sweep --schedules 1f1b --stages 4 --micro-batches 4 --format csv" + more);
    return result.substr(0, result.find('\n'));
  };
  EXPECT_THAT(head("--slices 1,4 --attention 0,0.5"), HasSubstr(",slices,"));
  EXPECT_THAT(head("--latency 0,1"), ::testing::Not(HasSubstr("slices")));
}

TEST(SimulateSlicesTest, RefusesWhatSlicesCannotHave) {
  const auto refusal = [](const Words& more) {
    const ProgramResult result = run_program(sliced(more), "");
    EXPECT_EQ(result.exit_code, 2) << result.output;
    return result.messages;
  };
  EXPECT_THAT(refusal("--slices 0"), HasSubstr("--slices must be at least 1, not 0"));
  EXPECT_THAT(refusal("--slices 257"), HasSubstr("--slices must be at most 256, not 257"));
  EXPECT_THAT(refusal("--slices 3 --slice-lengths 1,1"),
              HasSubstr("--slice-lengths: 2 lengths for 3 slices; give --slices 2"));
  EXPECT_THAT(refusal("--slices 3 --slice-lengths even"),
              HasSubstr("--slice-lengths: 'even' is not balanced, equal or a list such as 512,256,256"));
  EXPECT_THAT(refusal("--attention 2"), HasSubstr("--attention: 2 is not 0 to 1"));
  EXPECT_THAT(refusal("--slices 2 --pairs neighbors"), HasSubstr("--pairs neighbors: 1f1b has slices"));
}

TEST(SimulateCostsTest, SumsAndUpdatesEndTheStep) {
  json all = costs();
  all["all_reduce"] = {{"seconds", 1}};
  all["optimizer"] = 0.25;
  const json timeline = report("--costs - --sync post", json_text(all));
  EXPECT_EQ(timeline["ops_end"], 6);
  EXPECT_EQ(timeline["makespan"], 6 + 2 * 1 + 2 * 0.25);
  EXPECT_EQ(timeline["idle_by_cause"]["sync"], 2 * 2.5);
  EXPECT_EQ(timeline["workers"][0]["all_reduces"].size(), 2U);
}

TEST(SimulateCostsTest, LinksAndMemoryAreReported) {
  json all = costs();
  const json bytes = {{"weights", 100}, {"gradients", 100}, {"optimizer", 200}, {"activations", 10}, {"boundary", 1}};
  all["links"] = {{"alpha", 0.5}, {"beta", 0.25}, {"bytes", {2}}};
  all["memory"] = {bytes, bytes};
  const json timeline = report("--costs -", json_text(all));
  EXPECT_EQ(timeline["makespan"], 6 + 2 * 1);
  EXPECT_EQ(timeline["workers"][0]["memory"][0], json({0.0, 2 * 400 + 10}));
}

TEST(SimulateCostsTest, TheTextBreaksDownTheTime) {
  const std::string result = output_of(simulate("--latency 0.5"));
  for (const char* words : {"makespan 7,", "inner bubble 1, makespan bubble 1",
                            "critical path: 6 in 2 F and 2 B, 1 between", "     latency          2   14.3 %"})
    EXPECT_THAT(result, HasSubstr(words));
}

TEST(SimulateCostsTest, PairsTakeTheGivenTime) {
  const auto makespan = [](const Words& more) {
    return read_json(output_of("simulate 1f1b --stages 1 --micro-batches 2 --format json" + more))["makespan"]
        .get<double>();
  };
  EXPECT_EQ(makespan({}), 6);
  EXPECT_EQ(makespan("--pair-time 0.5"), 6) << "1F1B has no pairs of its own";
  const std::string cells = "0F0,0F1,0B0,0B1\n";
  const auto of_file = [&](const Words& more) {
    return read_json(output_of("simulate --file - --format json" + more, cells))["makespan"].get<double>();
  };
  EXPECT_EQ(of_file("--pairs neighbors"), 6);
  for (const char* word : {"neighbors", "neighbours"})
    EXPECT_DOUBLE_EQ(of_file(split("--pairs {} --pair-time 0.9", word)), 1 + 2.7 + 2) << word;
  EXPECT_EQ(of_file("--pairs none --pair-time 0.9"), 6);
}

TEST(SimulateCostsTest, WorkersMayShareCores) {
  EXPECT_EQ(report("--cores 2")["makespan"], report({})["makespan"]);
  EXPECT_EQ(report("--cores 1")["makespan"], 12);
  EXPECT_EQ(report("--cores 2 --data-parallel 2")["makespan"], 12);
}

double makespan_with(const std::string& partition) {
  return read_json(output_of(
      "simulate chimera --stages 4 --micro-batches 4 --costs - --format json",
      output_of(split("model gpt2-mini --vocabulary 16384 --stages 4 --schedule chimera --partition {} --format costs",
                      partition))))["makespan"];
}

TEST(SimulateCostsTest, ABalancedPartitionIsFasterThanAnEvenPartition) {
  EXPECT_LT(makespan_with("balanced"), makespan_with("even"));
  EXPECT_EQ(makespan_with("2,2,2,2"), makespan_with("even"));
}

TEST(SimulateCostsTest, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  json wrong = costs();
  wrong["stages"].erase(1);
  const std::string short_file = scratch.write("short.json", json_text(wrong));
  const std::string file = scratch.write("costs.json", json_text(costs()));
  for (const Refusal& refusal : std::vector<Refusal>{
           {simulate({"--costs", short_file}), {"short.json: stages: 1 entries; expected 2"}},
           {simulate(split("--costs {} --latency 1", file)), {"--latency", "--costs gives it already"}},
           {simulate(split("--costs {} --sync post", file)), {"--sync needs all-reduces", "all_reduce"}},
           {simulate("--sync lazy"), {"unknown --sync 'lazy'", "eager-opt"}},
           {simulate("--cores 0"), {"--cores: 0 is not 1 or more"}},
           {simulate("--data-parallel 0"), {"--data-parallel: 0 is not 1 or more"}},
           {simulate({"--costs", scratch.path("none.json")}), {"none.json: cannot be read"}}})
    expect_refusal(refusal);
}

}  // namespace
}  // namespace chimera::testing
