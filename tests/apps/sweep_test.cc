// Rows and ranking of `chimera sweep`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/json.h"
#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string output_after(const std::string& command, Words words) {
  words.insert(words.begin(), command);
  return output_of(words);
}

std::vector<json> json_lines(Words words) {
  words += "--format json";
  std::istringstream lines(output_after("sweep", words));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(read_json(line));
  return rows;
}

/// Rows of the CSV output, by column name.
std::vector<std::map<std::string, std::string>> csv(Words words) {
  words += "--format csv";
  std::istringstream lines(output_after("sweep", words));
  const auto cells_of = [](const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::string line;
  std::getline(lines, line);
  const auto columns = cells_of(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(lines, line)) {
    const auto cells = cells_of(line);
    EXPECT_EQ(cells.size(), columns.size()) << line;
    auto& row = rows.emplace_back();
    for (std::size_t c = 0; c < std::min(cells.size(), columns.size()); ++c) row[columns[c]] = cells[c];
  }
  return rows;
}

TEST(SweepTest, EachListOfTimesHasAColumn) {
  const auto rows =
      json_lines("--schedules gpipe,1f1b --stages 4 --micro-batches 8 --backward 1,2 --latency 0,0.5 --forward 1");
  std::vector<std::string> keys;
  for (const json& row : rows) {
    EXPECT_FALSE(row.contains("forward")) << row;
    keys.push_back(row["schedule"].get<std::string>() + " " + json_text(row["backward"]) + " " +
                   json_text(row["latency"]));
  }
  EXPECT_THAT(keys, ElementsAre("gpipe 1 0", "1f1b 1 0", "gpipe 1 0.5", "1f1b 1 0.5", "gpipe 2 0", "1f1b 2 0",
                                "gpipe 2 0.5", "1f1b 2 0.5"))
      << "1F1B is no faster, and waits for messages in between";
  // (N + D - 1) (F + B), and a message to and from each further stage.
  EXPECT_DOUBLE_EQ(rows[0]["makespan"], 11 * 2);
  EXPECT_DOUBLE_EQ(rows[6]["makespan"], 11 * 3 + 2 * 3 * 0.5);
}

TEST(SweepTest, TimesMayBeSplit) {
  const auto rows =
      json_lines("--schedules gpipe --stages 2 --micro-batches 2 --input-gradient 1 --weight-gradient 0.5,1");
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_DOUBLE_EQ(rows[0]["makespan"], 3 * 2.5);
  EXPECT_DOUBLE_EQ(rows[1]["makespan"], 3 * 3);
}

TEST(SweepTest, HasARowForEachScheduleAndShape) {
  const auto rows = csv("--schedules 1f1b,chimera --stages 2,4 --micro-batches D..3D");
  ASSERT_THAT(rows, SizeIs(2 * 2 * 3));
  Words shapes;
  for (const auto& row : rows) {
    if (row.at("schedule") == "1f1b") shapes.push_back(row.at("stages") + "x" + row.at("micro_batches"));
  }
  EXPECT_THAT(shapes, ElementsAre("2x2", "2x4", "2x6", "4x4", "4x8", "4x12"));
  EXPECT_EQ(rows[0].at("chunks"), "1") << "chimera, the faster one";
  EXPECT_EQ(rows[1].at("chunks"), "") << "1f1b takes none";
}

TEST(SweepTest, ARowMatchesASingleSimulation) {
  const Words costs = "--input-gradient 1.3 --weight-gradient 0.7 --latency 0.1";
  Words sweep = "--schedules all --stages 4 --micro-batches 8,9" + costs;
  const auto rows = csv(sweep);
  EXPECT_EQ(json_lines(sweep).size(), rows.size());
  for (const auto& row : rows) {
    Words one =
        split("{} --stages 4 --micro-batches {} --format json", row.at("schedule"), row.at("micro_batches")) + costs;
    const json alone = read_json(output_after("simulate", one));
    EXPECT_NEAR(alone["makespan"].get<double>(), std::stod(row.at("makespan")), 1e-6) << row.at("schedule");
    EXPECT_NEAR(alone["lower_bound"].get<double>(), std::stod(row.at("lower_bound")), 1e-6) << row.at("schedule");
  }
}

TEST(SweepTest, SortsByMakespanAndReportsWhatItLeavesOut) {
  const ProgramResult result =
      run_program("sweep --schedules gpipe,dualpipe,zb-h1,1f1b --stages 4 --micro-batches 4,16 --format json");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.messages, ::testing::StartsWith("chimera: left out dualpipe: --micro-batches must be"));
  std::istringstream lines(result.output);
  std::vector<std::pair<int, double>> order;
  for (std::string line; std::getline(lines, line);) {
    const json row = read_json(line);
    order.emplace_back(row["micro_batches"].get<int>(), row["makespan"].get<double>());
  }
  EXPECT_THAT(order, SizeIs(7));
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(SweepTest, FilesAreSchedulesToo) {
  const Scratch scratch;
  const std::string file =
      scratch.write("mine.json", run_program("schedule 1f1b --stages 4 --micro-batches 8 --format json").output);
  const auto rows = csv(split("--schedules gpipe,{} --stages 4 --micro-batches D,2D", file));
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[2].at("schedule"), file);
  EXPECT_EQ(rows[2].at("makespan"), rows[1].at("makespan")) << "N = 8: 1F1B takes as long as GPipe";
  const auto alone = csv(split("--schedules {} --latency 0,1", file));
  ASSERT_THAT(alone, SizeIs(2));
  EXPECT_EQ(alone[0].at("makespan"), rows[2].at("makespan"));
  EXPECT_THAT(output_after("simulate", {file}), HasSubstr("makespan 33,"));
  EXPECT_EQ(run_program({"schedule", file}).output, run_program("schedule 1f1b --stages 4 --micro-batches 8").output);
  expect_refusal({split("simulate {} --stages 4", file), {"mine.json has a shape already"}});
  expect_refusal({split("schedule {} --stages 4", file), {"mine.json has a shape already"}});
  expect_refusal(
      {split("sweep --schedules {} --stages 4 --micro-batches 4", file), {"mine.json: has D = 4 and N = 8"}});
}

TEST(SweepTest, OmitsInvalidShapes) {
  EXPECT_THAT(csv("--schedules dualpipe --stages 3,4 --micro-batches D,2D"), SizeIs(1));
  EXPECT_THAT(csv("--schedules 1f1b,chimera --stages 4 --micro-batches 4 --chunks 1,2"), SizeIs(3))
      << "1f1b has no chunks, and one row";
}

TEST(SweepTest, AcceptsASingleScheduleName) {
  const auto rows = json_lines("--schedules chimera --stages 4 --micro-batches 4,8 --chunks 2");
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0]["makespan"], 14);
  EXPECT_EQ(rows[1]["chunks"], 2);
}

TEST(SweepTest, TakesTheFasterOfTwoOrders) {
  const Words shape = "chimera-zb --stages 4 --micro-batches 4 --chunks 2";
  const auto with = [&](const Words& more) { return shape + more; };
  const std::string slots = output_after("simulate", with("--input-gradient 1 --weight-gradient 1"));
  EXPECT_THAT(slots, HasSubstr("makespan 12.5,"));
  EXPECT_THAT(slots, HasSubstr("\norder: slots\n"));
  const Words late = "--input-gradient 1 --weight-gradient 1 --latency 0.1";
  EXPECT_THAT(output_after("simulate", with(late)), HasSubstr("makespan 13.6,"));
  EXPECT_THAT(output_after("simulate", with(late)), HasSubstr("\norder: deepest\n"));
  EXPECT_THAT(output_after("simulate", with(late) + "--order slots"), HasSubstr("makespan 13.8,"));
  EXPECT_EQ(json_lines("--schedules chimera-zb --stages 4 --micro-batches 4 --latency 0.1")[0]["order"], "slots");
}

TEST(SweepTest, ALimitOmitsSchedulesThatHoldMore) {
  std::vector<std::string> names;
  for (const auto& row : csv("--schedules all --stages 8 --micro-batches 16 --max-in-flight 5")) {
    names.push_back(row.at("schedule"));
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("gems", "v-half", "v-min"));
  const auto in_bytes = csv(
      "--schedules 1f1b,gpipe,chimera --stages 4 --micro-batches 8 --memory 7 --activation-bytes 1 --weight-bytes 2");
  ASSERT_THAT(in_bytes, SizeIs(1)) << "1f1b has 2 + 4, gpipe 2 + 8, chimera 4 + 4";
  EXPECT_EQ(in_bytes[0].at("schedule"), "1f1b");
  expect_refusal(
      {"simulate gpipe --stages 4 --micro-batches 8 --memory 7 --activation-bytes 1 --weight-bytes 2", {"--memory: "}});
  expect_refusal({"sweep --schedules all --stages 4 --micro-batches 8 --memory 1 --activation-bytes 1 --weight-bytes 2",
                  {"no schedule is left", "holds more than --memory 1"}});
  expect_refusal({"simulate gpipe --stages 4 --micro-batches 8 --memory 7", {"come together"}});
  expect_refusal({"simulate gpipe --stages 4 --micro-batches 8 --max-in-flight 4",
                  {"--max-in-flight", "5 stage units in flight, 4 allowed"}});
}

TEST(SweepTest, ListsTakeNamesToo) {
  const auto rows = csv("--schedules chimera --stages 4 --micro-batches 8 --scale direct,doubling");
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_NE(rows[0].at("scale"), rows[1].at("scale"));
}

TEST(SweepTest, OnlyASweepTakesLists) {
  for (const char* command : {"simulate", "schedule", "check"}) {
    expect_refusal({split("{} 1f1b --stages 2,4 --micro-batches 4", command),
                    {"--stages: '2,4' is a list; `chimera sweep` takes lists"}});
  }
  expect_refusal({"simulate 1f1b --stages 2 --micro-batches 4 --latency 0,1", {"--latency: '0,1'"}});
  expect_refusal({"simulate --schedules all --stages 2 --micro-batches 4",
                  {"`chimera simulate --schedules` is now `chimera sweep --schedules`"}});
}

TEST(SweepTest, RefusesInvalidSweeps) {
  const auto refused = [](const Words& flags, const std::vector<std::string>& said) {
    expect_refusal({"sweep" + flags, said});
  };
  refused("--schedules all --stages 4,x --micro-batches 4", {"--stages", "'4,x'", "4,8,16"});
  refused("--schedules all --stages 4 --micro-batches 4D..D", {"--micro-batches", "D..4D"});
  refused("--schedules all --stages 8..4 --micro-batches 4", {"--stages", "'8..4'"});
  refused("--schedules 1f1c --stages 4 --micro-batches 4", {"1f1c", "1f1b"});
  refused("--schedules all --stages 4", {"--micro-batches is missing"});
  refused("--schedules 1f1b --stages 2,4 --micro-batches 4 --format svg", {"--format 'svg'"});
  refused("--schedules dualpipe --stages 4 --micro-batches D", {"dualpipe", "2D = 8"});
  refused("--schedules all --stages 1..1000 --micro-batches 1..1000", {"10000 shapes"});
  refused("--schedules 1f1b --stages 4 --micro-batches 1..99999999", {"--micro-batches", "10000 numbers"});
  refused("--micro-batches 8", {"--stages is missing"});
  refused("--stages 0 --micro-batches 8", {"--stages must be at least 1, not 0"});
  refused("--stages 4 --micro-batches 8 --max-in-flight 0.1",
          {"no schedule is left", "holds more than --max-in-flight 0.1"});
  refused("--stages 4 --micro-batches 8 --costs missing.json", {"missing.json"});
  expect_refusal({"best --stages 8 --micro-batches 8", {"`chimera best` is now `chimera sweep`"}});
}

/// Reasons of the table's lines about schedules that were left out
std::map<std::string, std::string> left_out(const std::string& table) {
  std::map<std::string, std::string> reasons;
  std::istringstream lines(table);
  const std::string start = "left out ";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(start)) continue;
    const std::size_t colon = line.find(": ");
    reasons[line.substr(start.size(), colon - start.size())] = line.substr(colon + 2);
  }
  return reasons;
}

TEST(RankingTest, AllSchedulesHaveTheirBestParameters) {
  const Words costs = "--stages 4 --micro-batches 8 --latency 0.1";
  const auto rows = csv(costs);
  EXPECT_GT(rows.size(), 10U);
  double last = 0;
  for (const auto& row : rows) {
    SCOPED_TRACE(row.at("schedule"));
    const double makespan = std::stod(row.at("makespan"));
    EXPECT_GE(makespan, last);
    last = makespan;
    Words one = Words{row.at("schedule"), "--format", "json"} + costs;
    const double usual = read_json(output_after("simulate", one))["makespan"].get<double>();
    EXPECT_LE(last, usual * (1 + 1e-9)) << "no slower than with the default parameters";
    for (const char* flag : {"pipelines", "chunks", "waves", "scale", "order"}) {
      if (!row.at(flag).empty()) one += Words{std::string("--") + flag, row.at(flag)};
    }
    EXPECT_NEAR(read_json(output_after("simulate", one))["makespan"].get<double>(), last, 1e-6);
  }
}

TEST(RankingTest, AFlagFixesItsParameter) {
  for (const auto& row : csv("--stages 4 --micro-batches 8 --pipelines 2"))
    EXPECT_THAT(row.at("pipelines"), ::testing::AnyOf("", "2")) << row.at("schedule");
}

TEST(RankingTest, LeavesOutSchedulesBeyondTheLimits) {
  const Words limited = "--stages 8 --micro-batches 16 --max-in-flight 5";
  for (const auto& row : csv(limited)) EXPECT_LE(std::stod(row.at("peak_stage_units")), 5) << row.at("schedule");
  auto reasons = left_out(output_after("sweep", limited));
  EXPECT_EQ(reasons["gpipe"], "holds more than --max-in-flight 5");
  EXPECT_EQ(reasons["pipedream"], "updates weights without a flush");
  EXPECT_THAT(left_out(output_after("sweep", "--stages 3 --micro-batches 6"))["dualpipe"], HasSubstr("--stages"));
}

/// Cells of the table's line about a schedule, without the unit %
std::vector<std::string> cells_of(const std::string& table, const std::string& schedule) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> cells;
    for (std::string word; words >> word;) {
      if (word != "%") cells.push_back(word);
    }
    if (!cells.empty() && cells.front() == schedule) return cells;
  }
  return {};
}

TEST(RankingTest, TheTableHasFiguresAndNextCommands) {
  const std::string table = output_after("sweep", "--schedules gpipe,zb-h1,chimera --stages 8 --micro-batches 16");
  EXPECT_THAT(cells_of(table, "schedule"),
              ElementsAre("schedule", "makespan", "bubble", "activations", "weights", "gap"));
  EXPECT_THAT(cells_of(table, "zb-h1"), ElementsAre("zb-h1", "55", "12.7", "8", "1", "0.0"));
  EXPECT_THAT(cells_of(table, "chimera"), ElementsAre("chimera", "66", "27.3", "8", "2", "15.8"));
  EXPECT_THAT(table, HasSubstr("chimera simulate zb-h1 --stages 8 --micro-batches 16\n"));
  EXPECT_THAT(table, HasSubstr("chimera train --schedule zb-h1 --stages 8 --micro-batches 16 --data FILE\n"));
  const std::string best = output_after("sweep", "--stages 4 --micro-batches 8");
  EXPECT_THAT(cells_of(best, "interleaved-zb"), ::testing::Contains("--chunks"));
  const std::string listed = output_after("sweep", "--schedules gpipe --stages 2,4 --micro-batches 8");
  EXPECT_THAT(cells_of(listed, "schedule"), ::testing::Contains("stages"));
  EXPECT_THAT(listed, ::testing::Not(HasSubstr("chimera train")));
}

}  // namespace
}  // namespace chimera::testing
