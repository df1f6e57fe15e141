// `chimera simulate` with lists of shapes, its choice between two orders of a schedule, and `chimera best`.

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

using Words = std::vector<std::string>;

std::string simulated(Words words) {
  words.insert(words.begin(), "simulate");
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  return result.output;
}

std::vector<json> json_lines(Words words) {
  words.insert(words.end(), {"--format", "json"});
  std::istringstream lines(simulated(words));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(read_json(line));
  return rows;
}

/// Rows of the CSV output, by column name.
std::vector<std::map<std::string, std::string>> csv(const Words& words) {
  std::istringstream lines(simulated(words));
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
  const auto rows = json_lines({"--schedules", "gpipe,1f1b", "--stages", "4", "--micro-batches", "8", "--backward",
                                "1,2", "--latency", "0,0.5", "--forward", "1"});
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

TEST(SweepTest, AListOfTimesAloneIsASweep) {
  const auto rows = json_lines(
      {"gpipe", "--stages", "2", "--micro-batches", "2", "--input-gradient", "1", "--weight-gradient", "0.5,1"});
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_DOUBLE_EQ(rows[0]["makespan"], 3 * 2.5);
  EXPECT_DOUBLE_EQ(rows[1]["makespan"], 3 * 3);
}

TEST(SweepTest, HasARowForEachScheduleAndShape) {
  const auto rows = csv({"--schedules", "1f1b,chimera", "--stages", "2,4", "--micro-batches", "D..3D"});
  ASSERT_THAT(rows, SizeIs(2 * 2 * 3));
  std::vector<std::string> shapes;
  for (const auto& row : rows) {
    if (row.at("schedule") == "1f1b") shapes.push_back(row.at("stages") + "x" + row.at("micro_batches"));
  }
  EXPECT_THAT(shapes, ElementsAre("2x2", "2x4", "2x6", "4x4", "4x8", "4x12"));
  EXPECT_EQ(rows[0].at("chunks"), "1") << "chimera, the faster one";
  EXPECT_EQ(rows[1].at("chunks"), "") << "1f1b takes none";
}

TEST(SweepTest, ARowMatchesASingleSimulation) {
  const Words costs = {"--input-gradient", "1.3", "--weight-gradient", "0.7", "--latency", "0.1"};
  Words sweep = {"--schedules", "all", "--stages", "4", "--micro-batches", "8,9"};
  sweep.insert(sweep.end(), costs.begin(), costs.end());
  const auto rows = csv(sweep);
  EXPECT_EQ(json_lines(sweep).size(), rows.size());
  for (const auto& row : rows) {
    Words one = {row.at("schedule"), "--stages", "4", "--micro-batches", row.at("micro_batches"), "--format", "json"};
    one.insert(one.end(), costs.begin(), costs.end());
    const json alone = read_json(simulated(one));
    EXPECT_NEAR(alone["makespan"].get<double>(), std::stod(row.at("makespan")), 1e-6) << row.at("schedule");
    EXPECT_NEAR(alone["lower_bound"].get<double>(), std::stod(row.at("lower_bound")), 1e-6) << row.at("schedule");
  }
}

TEST(SweepTest, SortsByMakespanAndReportsWhatItLeavesOut) {
  const ProgramResult result = run_program({"simulate", "--schedules", "gpipe,dualpipe,zb-h1,1f1b", "--stages", "4",
                                            "--micro-batches", "4,16", "--format", "json"});
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
  const std::string file = scratch.write(
      "mine.json",
      run_program({"schedule", "1f1b", "--stages", "4", "--micro-batches", "8", "--format", "json"}).output);
  const auto rows = csv({"--schedules", "gpipe," + file, "--stages", "4", "--micro-batches", "D,2D"});
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[2].at("schedule"), file);
  EXPECT_EQ(rows[2].at("makespan"), rows[1].at("makespan")) << "N = 8: 1F1B takes as long as GPipe";
  const auto alone = csv({file, "--latency", "0,1"});
  ASSERT_THAT(alone, SizeIs(2));
  EXPECT_EQ(alone[0].at("makespan"), rows[2].at("makespan"));
  EXPECT_THAT(simulated({file}), HasSubstr("makespan 33,"));
  EXPECT_EQ(run_program({"schedule", file}).output,
            run_program({"schedule", "1f1b", "--stages", "4", "--micro-batches", "8"}).output);
  expect_refusal({{"simulate", file, "--stages", "4"}, {"mine.json has a shape already"}});
  expect_refusal({{"schedule", file, "--stages", "4"}, {"mine.json has a shape already"}});
  expect_refusal(
      {{"simulate", "--schedules", file, "--stages", "4", "--micro-batches", "4"}, {"mine.json: has D = 4 and N = 8"}});
}

TEST(SweepTest, OmitsInvalidShapes) {
  EXPECT_THAT(csv({"--schedules", "dualpipe", "--stages", "3,4", "--micro-batches", "D,2D"}), SizeIs(1));
  EXPECT_THAT(csv({"--schedules", "1f1b,chimera", "--stages", "4", "--micro-batches", "4", "--chunks", "1,2"}),
              SizeIs(3))
      << "1f1b has no chunks, and one row";
}

TEST(SweepTest, AcceptsASingleScheduleName) {
  const auto rows = json_lines({"chimera", "--stages", "4", "--micro-batches", "4,8", "--chunks", "2"});
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0]["makespan"], 14);
  EXPECT_EQ(rows[1]["chunks"], 2);
}

TEST(SweepTest, TakesTheFasterOfTwoOrders) {
  const Words shape = {"chimera-zb", "--stages", "4", "--micro-batches", "4", "--chunks", "2"};
  const auto with = [&](const Words& more) {
    Words words = shape;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Words equal = {"--input-gradient", "1", "--weight-gradient", "1"};
  const std::string slots = simulated(with(equal));
  EXPECT_THAT(slots, HasSubstr("makespan 12.5,"));
  EXPECT_THAT(slots, HasSubstr("\norder: slots\n"));
  const Words late = {"--input-gradient", "1", "--weight-gradient", "1", "--latency", "0.1"};
  EXPECT_THAT(simulated(with(late)), HasSubstr("makespan 13.6,"));
  EXPECT_THAT(simulated(with(late)), HasSubstr("\norder: deepest\n"));
  Words named = with(late);
  named.insert(named.end(), {"--order", "slots"});
  EXPECT_THAT(simulated(named), HasSubstr("makespan 13.8,"));
  EXPECT_EQ(json_lines(
                {"--schedules", "chimera-zb", "--stages", "4", "--micro-batches", "4", "--latency", "0.1"})[0]["order"],
            "slots");
}

TEST(SweepTest, ALimitOmitsSchedulesThatHoldMore) {
  std::vector<std::string> names;
  for (const auto& row :
       csv({"--schedules", "all", "--stages", "8", "--micro-batches", "16", "--max-in-flight", "5"})) {
    names.push_back(row.at("schedule"));
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("gems", "v-half", "v-min"));
  const auto in_bytes = csv({"--schedules", "1f1b,gpipe,chimera", "--stages", "4", "--micro-batches", "8", "--memory",
                             "7", "--activation-bytes", "1", "--weight-bytes", "2"});
  ASSERT_THAT(in_bytes, SizeIs(1)) << "1f1b has 2 + 4, gpipe 2 + 8, chimera 4 + 4";
  EXPECT_EQ(in_bytes[0].at("schedule"), "1f1b");
  expect_refusal({{"simulate", "gpipe", "--stages", "4", "--micro-batches", "8", "--memory", "7", "--activation-bytes",
                   "1", "--weight-bytes", "2"},
                  {"--memory: "}});
  expect_refusal({{"simulate", "--schedules", "all", "--stages", "4", "--micro-batches", "8", "--memory", "1",
                   "--activation-bytes", "1", "--weight-bytes", "2"},
                  {"--memory 1: all", "hold more"}});
  expect_refusal({{"simulate", "gpipe", "--stages", "4", "--micro-batches", "8", "--memory", "7"}, {"come together"}});
  expect_refusal({{"simulate", "gpipe", "--stages", "4", "--micro-batches", "8", "--max-in-flight", "4"},
                  {"--max-in-flight", "5 stage units in flight, 4 allowed"}});
}

TEST(SweepTest, ScheduleAlsoAcceptsLists) {
  const ProgramResult result = run_program(
      {"schedule", "1f1b", "--with", "gpipe", "--stages", "2,4", "--micro-batches", "D..2D", "--format", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  std::istringstream lines(result.output);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    const json row = read_json(line);
    rows.push_back(row["schedule"].get<std::string>() + " " + std::to_string(row["stages"].get<int>()) + " " +
                   std::to_string(row["micro_batches"].get<int>()) + " " + std::to_string(row["makespan"].get<int>()));
  }
  EXPECT_THAT(rows, ElementsAre("1f1b 2 2 9", "gpipe 2 2 9", "1f1b 2 4 15", "gpipe 2 4 15", "1f1b 4 4 21",
                                "gpipe 4 4 21", "1f1b 4 8 33", "gpipe 4 8 33"));
  EXPECT_EQ(run_program({"schedule", "1f1b", "--stages", "2,4", "--micro-batches", "4", "--format", "svg"}).exit_code,
            2);
}

TEST(SweepTest, RefusesInvalidSweeps) {
  const auto refused = [](Words words, const std::vector<std::string>& said) {
    words.insert(words.begin(), "simulate");
    expect_refusal({words, said});
  };
  refused({"--schedules", "all", "--stages", "4,x", "--micro-batches", "4"}, {"--stages", "'4,x'", "4,8,16"});
  refused({"--schedules", "all", "--stages", "4", "--micro-batches", "4D..D"}, {"--micro-batches", "D..4D"});
  refused({"--schedules", "all", "--stages", "8..4", "--micro-batches", "4"}, {"--stages", "'8..4'"});
  refused({"--schedules", "1f1c", "--stages", "4", "--micro-batches", "4"}, {"1f1c", "1f1b"});
  refused({"--schedules", "all", "--stages", "4"}, {"--micro-batches is missing"});
  refused({"--schedules", "all", "1f1b", "--stages", "4", "--micro-batches", "4"}, {"NAME", "--schedules"});
  refused({"1f1b", "--stages", "2,4", "--micro-batches", "4", "--with", "gpipe"}, {"--with"});
  refused({"1f1b", "--stages", "2,4", "--micro-batches", "4", "--format", "svg"}, {"--format svg"});
  refused({"dualpipe", "--stages", "4", "--micro-batches", "D"}, {"dualpipe", "2D = 8"});
  refused({"--schedules", "all", "--stages", "1..1000", "--micro-batches", "1..1000"}, {"10000 shapes"});
  refused({"1f1b", "--stages", "4", "--micro-batches", "1..99999999"}, {"--micro-batches", "10000 numbers"});
  refused({"1f1b", "--stages", "4", "--micro-batches", "4", "--format", "csv"}, {"--format csv", "--schedules"});
}

json best(Words words) {
  words.insert(words.begin(), "best");
  words.insert(words.end(), {"--format", "json"});
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  EXPECT_EQ(result.messages, "");
  return read_json(result.output);
}

std::map<std::string, std::string> reasons(const json& ranking) {
  std::map<std::string, std::string> reasons;
  for (const json& each : ranking["left_out"])
    reasons[each["schedule"].get<std::string>()] = each["reason"].get<std::string>();
  return reasons;
}

TEST(BestTest, RanksSchedulesWithTheirBestParameters) {
  const Words costs = {"--stages", "4", "--micro-batches", "8", "--latency", "0.1"};
  const json ranking = best(costs);
  EXPECT_GT(ranking["schedules"].size(), 10U);
  double last = 0;
  for (const json& each : ranking["schedules"]) {
    SCOPED_TRACE(json_text(each));
    EXPECT_GE(each["makespan"].get<double>(), last);
    last = each["makespan"].get<double>();
    Words one = {each["schedule"].get<std::string>(), "--format", "json"};
    one.insert(one.end(), costs.begin(), costs.end());
    const double usual = read_json(simulated(one))["makespan"].get<double>();
    EXPECT_LE(last, usual * (1 + 1e-9)) << "no slower than with the default parameters";
    std::istringstream parameters(each["parameters"].get<std::string>());
    for (std::string word; parameters >> word;) one.push_back(word);
    EXPECT_NEAR(read_json(simulated(one))["makespan"].get<double>(), last, 1e-9);
  }
  EXPECT_THAT(reasons(ranking)["pipedream"], HasSubstr("without a flush"));
}

TEST(BestTest, LeavesOutSchedulesBeyondTheLimits) {
  const json ranking = best({"--stages", "8", "--micro-batches", "16", "--max-in-flight", "5"});
  for (const json& each : ranking["schedules"]) EXPECT_LE(each["peak_stage_units"].get<double>(), 5) << each;
  EXPECT_EQ(reasons(ranking)["gpipe"], "holds more than --max-in-flight 5");
  const json odd = best({"--stages", "3", "--micro-batches", "6"});
  EXPECT_THAT(reasons(odd)["dualpipe"], HasSubstr("--stages"));
}

TEST(BestTest, ShowsATableAndWhatToDoNext) {
  const ProgramResult result = run_program({"best", "--stages", "4", "--micro-batches", "8"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, ::testing::StartsWith("schedule "));
  EXPECT_THAT(result.output, HasSubstr("\nleft out pipedream: updates weights without a flush\n"));
  EXPECT_THAT(result.output, HasSubstr("chimera train --schedule "));
}

TEST(BestTest, RefusesInOneLine) {
  expect_refusal({{"best", "--micro-batches", "8"}, {"--stages is missing"}});
  expect_refusal({{"best", "--stages", "8"}, {"--micro-batches is missing"}});
  expect_refusal({{"best", "--stages", "0", "--micro-batches", "8"}, {"--stages must be at least 1, not 0"}});
  expect_refusal({{"best", "--stages", "4", "--micro-batches", "8", "--max-in-flight", "0.1"},
                  {"no schedule is left", "holds more than --max-in-flight 0.1"}});
  expect_refusal({{"best", "--stages", "4", "--micro-batches", "8", "--costs", "missing.json"}, {"missing.json"}});
}

}  // namespace
}  // namespace chimera::testing
