#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/json.h"
#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

TEST(SweepCommandTest, WritesCsvToAFileAndAChart) {
  const Scratch scratch;
  const Words shapes = "--schedules 1f1b,chimera --stages 4 --micro-batches D,2D";
  Words printed = "sweep --format csv";
  Words files = split("sweep --output {} --chart {}", scratch.path("table"), scratch.path("chart.svg"));
  printed += shapes;
  files += shapes;
  EXPECT_EQ(run_program(files).output, "");
  EXPECT_THAT(read_file(scratch.path("table")), ::testing::StartsWith("schedule,stages,micro_batches,pipelines,"));
  EXPECT_EQ(read_file(scratch.path("table")), run_program(printed).output);
  const std::string chart = read_file(scratch.path("chart.svg"));
  EXPECT_THAT(chart, HasSubstr("bubble_ratio over micro_batches"));
  EXPECT_THAT(chart, HasSubstr("chimera, D = 4"));
}

TEST(SweepCommandTest, DrawsACurveOverATime) {
  const Scratch scratch;
  const Words words = split(
      "sweep --schedules 1f1b,chimera --stages 4 --micro-batches 4 --latency 0,0.5,1 --backward 1,2 --over latency "
      "--value makespan --chart {}",
      scratch.path("chart.svg"));
  EXPECT_EQ(run_program(words).exit_code, 0);
  const std::string chart = read_file(scratch.path("chart.svg"));
  EXPECT_THAT(chart, HasSubstr("makespan over latency"));
  EXPECT_THAT(chart, HasSubstr("chimera, D = 4, N = 4, backward 2"));
}

TEST(SweepCommandTest, KeepsTheParetoFront) {
  const Scratch scratch;
  const Words words = "sweep --schedules interleaved-zb,v-min --stages 4 --micro-batches 8 --chunks 1..3 --format json";
  const auto rows = [](const Words& typed) {
    const std::string result = output_of(typed);
    std::vector<nlohmann::json> found;
    std::istringstream lines(result);
    for (std::string line; std::getline(lines, line);) found.push_back(read_json(line));
    return found;
  };
  Words pareto = words + Words{"--pareto", "--chart", scratch.path("memory.svg")};
  const auto all = rows(words);
  const auto kept = rows(pareto);
  ASSERT_LT(kept.size(), all.size());
  const auto covers = [](const nlohmann::json& a, const nlohmann::json& b) {
    return a["schedule"] == b["schedule"] && a["makespan"] <= b["makespan"] &&
           a["peak_stage_units"] <= b["peak_stage_units"];
  };
  for (const auto& row : all) {
    const auto count = std::ranges::count_if(kept, [&](const auto& other) { return covers(other, row); });
    EXPECT_GE(count, 1) << row;
    const bool is_kept = std::ranges::find(kept, row) != kept.end();
    EXPECT_TRUE(!is_kept || count == 1) << row;
  }
  const std::string chart = read_file(scratch.path("memory.svg"));
  EXPECT_THAT(chart, HasSubstr("makespan over peak_stage_units"));
  EXPECT_THAT(chart, HasSubstr("interleaved-zb, D = 4, N = 8"));
}

TEST(SweepCommandTest, RefusesUndrawableRequests) {
  expect_refusal({"sweep --schedules gpipe --stages 4 --micro-batches 4 --chart c.svg --value makespam",
                  {"makespam", "makespan"}});
  expect_refusal({"sweep --stages 4 --micro-batches 4 --steps 3", {"--steps", "--train"}});
  expect_refusal({"sweep --schedule 1f1b --stages 4 --micro-batches 4 --train corpus/tiny.txt",
                  {"unexpected '--schedule'", "--schedules"}});
  expect_refusal({"sweep 1f1b --stages 4 --micro-batches 4", {"unexpected '1f1b'", "--schedules"}});
  expect_refusal({"sweep --stages 4 --micro-batches 4 --train --model gpt2-tiny", {"--train --model: expected data"}});
  expect_refusal({"sweep --stages 4 --micro-batches 4 --latency 0,x", {"--latency", "'x'"}});
  expect_refusal(
      {"sweep --stages 4 --micro-batches 4 --latency 0,1 --train corpus/tiny.txt", {"--train", "--latency"}});
}

}  // namespace
}  // namespace chimera::testing
