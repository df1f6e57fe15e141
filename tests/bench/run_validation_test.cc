#include "core/files.h"
#include "validation/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/contest.h"
#include "support/message_of.h"
#include "support/paths.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

const std::string kMachine = testing::source_path("/machines/p100-aries.json");

/// Reports 300 bytes of tensors on one of its ranks, whatever its arguments are. Like `train`, it replaces no file
/// without --overwrite.
constexpr const char* kProgram = R"(#!/bin/sh
line='{"step": 3, "loss": 1, "step_seconds": 0.5, "tokens_per_second": 10, "peak_memory_bytes": 4000}'
echo "$line" >"$CHIMERA_METRICS"
case " $* " in *' --overwrite '*) replaces=1 ;; esac
while [ $# -gt 0 ]; do
  if [ "$1" = --tensor-memory ]; then
    [ -e "$2" ] && [ -z "$replaces" ] && exit 2
    echo '{"peak_bytes": [100, 300]}' >"$2"
  fi
  shift
done
exit 0
)";

TEST(ValidateTest, ReportsPredictionsNextToMeasurements) {
  const TemporaryFolder folder;
  const std::string program = folder.file("program");
  std::ofstream(program) << kProgram;
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const ValidationOptions options{.program = program, .machine = kMachine, .only = "bert-tiny b 8, gpipe D 4 N 8"};
  const MeasureGrid measure = [](const std::vector<GridRun>& runs) {
    return GridTimes{std::vector<std::vector<double>>(runs.size(), {0.5, 0.4, 0.6}), {}};
  };
  const PredictRun predict = [](const MachineProfile& machine, const GridRun& run) {
    EXPECT_EQ(machine.name, "p100-aries");
    return RunPrediction{0.1 * static_cast<double>(run.stages), run.recomputes ? 150.0 : 330.0};
  };
  const auto runs = run_validation(options, measure, predict, [](const std::string&) {}).runs;
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_TRUE(runs[1].run.recomputes);
  for (const Validated& one : runs) {
    EXPECT_EQ(one.seconds, (std::vector<double>{0.5, 0.4, 0.6}));
    EXPECT_NEAR(one.time_error(), -0.2, 1e-12);
    EXPECT_NEAR(one.memory_error(), one.run.recomputes ? -0.5 : 0.1, 1e-12);
    EXPECT_EQ(one.resident_bytes, 4000);
  }
}

TEST(ValidateTest, RunsOverSocketsArePredictedByTheirProfile) {
  const TemporaryFolder folder;
  const std::string program = folder.file("program");
  std::ofstream(program) << kProgram;
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const ValidationOptions options{.program = program, .only = "gpt2-tiny b 1, chimera D 2 N 2, vocabulary"};
  const MeasureGrid measure = [](const std::vector<GridRun>& runs) {
    MachineProfile memory = read_machine(kMachine);
    MachineProfile sockets = memory;
    memory.name = "memory";
    sockets.name = "sockets";
    return GridTimes{std::vector<std::vector<double>>(runs.size(), {0.5, 0.5}), {memory}, {sockets}};
  };
  const PredictRun predict = [](const MachineProfile& machine, const GridRun&) {
    return RunPrediction{machine.name == "sockets" ? 2.0 : 1.0, 1};
  };
  const Validation all = run_validation(options, measure, predict, [](const std::string&) {});
  ASSERT_EQ(all.runs.size(), 2U);
  for (const Validated& one : all.runs) EXPECT_EQ(one.predicted_seconds, one.run.sockets ? 2.0 : 1.0);

  const PredictRun twice = [&](const MachineProfile& machine, const GridRun& run) {
    return RunPrediction{2 * predict(machine, run).step_seconds, 7};
  };
  const Validation again = predict_again(to_json(all), "runs.json", twice);
  ASSERT_EQ(again.runs.size(), 2U);
  EXPECT_EQ(again.on_sockets, all.on_sockets);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.runs[i].predicted_seconds, 2 * all.runs[i].predicted_seconds);
    EXPECT_EQ(again.runs[i].predicted_bytes, 7);
    EXPECT_EQ(again.runs[i].seconds, all.runs[i].seconds);
    EXPECT_EQ(again.runs[i].bytes, all.runs[i].bytes);
    EXPECT_EQ(again.runs[i].resident_bytes, 4000);
  }
}

TEST(ValidateTest, RefusesFilesThatAreNoMeasuredGrid) {
  const auto error_of = [](const std::string& from, const std::string& to) -> std::string {
    Validation all{.runs = {Validated{validation_grid().front(), 1, {1, 2}, 1, 1, 1}}};
    all.machine = read_machine(kMachine);
    all.on_sockets = all.machine;
    std::string text = to_json(all);
    text.replace(text.find(from), from.size(), to);
    return testing::message_of([&] { (void)predict_again(text, "runs.json", predict_run); });
  };
  EXPECT_EQ(error_of("\"machine\"", "\"machine\""), "");
  EXPECT_THAT(error_of("gpt2-mini b 2,", "gpt9 b 2,"), HasSubstr("runs[0].name: 'gpt9 b 2, gpipe D 2 N 2' is no run"));
  EXPECT_THAT(error_of("\"step_seconds\": [", "\"step_seconds\": [0, "), HasSubstr("two or more times above 0"));
  EXPECT_THAT(error_of("\"profile\"", "\"other\""), HasSubstr("runs.json: top level: field 'profile' is missing"));
}

TEST(ValidateTest, SumsOfLargeVocabulariesTakeMoreOnSlowerLinks) {
  MachineProfile machine = read_machine(kMachine);
  for (const GridRun& run : validation_grid()) {
    if (run.vocabulary == 0) continue;
    const double before = predict_run(machine, run).step_seconds;
    MachineProfile slower = machine;
    for (LinkTimes* link : {&slower.all_reduce.within_node, &slower.all_reduce.between_nodes}) link->beta *= 2;
    EXPECT_GT(predict_run(slower, run).step_seconds, before) << describe(run);
  }
}

TEST(ValidateTest, PredictsEveryRunOfTheGrid) {
  const MachineProfile machine = read_machine(kMachine);
  for (const GridRun& run : validation_grid()) {
    const RunPrediction prediction = predict_run(machine, run);
    EXPECT_GT(prediction.step_seconds, 0) << describe(run);
    EXPECT_GT(prediction.peak_bytes, 1e5) << describe(run);
    if (!run.recomputes) continue;
    GridRun keeps = run;
    keeps.recomputes = false;
    EXPECT_GT(prediction.step_seconds, predict_run(machine, keeps).step_seconds) << describe(run);
  }
}

TEST(ValidateTest, RefusesAGridWithoutRuns) {
  EXPECT_EQ(testing::message_of(
                [&] {
                  (void)run_validation({.program = "true", .machine = kMachine, .only = "gpt4"}, {}, {},
                                       [](const std::string&) {});
                },
                "accepted"),
            "--only 'gpt4': no run of the grid has this name; names look like 'gpt2-tiny b 1, zb-h1 D 4 N 4, "
            "sequence 1024, recompute'");
}

}  // namespace
}  // namespace chimera
