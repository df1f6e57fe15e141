// The subcommands that need no training.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/paths.h"
#include "support/program.h"

namespace chimera::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::filesystem::path kSource = testing::source_path("");

/// Output of a command that must succeed without messages.
std::string quiet_output(const Words& arguments, const std::string& input = "") {
  const ProgramResult result = succeeded(run_program(arguments, input));
  EXPECT_EQ(result.messages, "");
  return result.output;
}

const Words kFourStages = "schedule chimera --stages 4 --micro-batches 4";

std::string four_stages_as_json() {
  auto arguments = kFourStages;
  arguments += "--format json";
  return quiet_output(arguments);
}

TEST(ScheduleCommandTest, EveryPictureMatchesItsGoldenFile) {
  for (const json& schedule : read_json(quiet_output("schedules --format json"))) {
    const auto name = schedule["name"].get<std::string>();
    EXPECT_EQ(
        quiet_output(split("schedule {} --stages {} --micro-batches {}", name, json_text(schedule["figure"]["stages"]),
                           json_text(schedule["figure"]["micro_batches"]))),
        read_file(kSource / "tests/golden" / (name + ".txt")))
        << name;
  }
}

TEST(ScheduleCommandTest, ChoosesTheOrderThatSimulateChooses) {
  for (const Words more : {"", "--order auto", "--order slots", "--order deepest"}) {
    const Words flags = "chimera-zb --stages 4 --micro-batches 4 --chunks 2" + more;
    const auto with = [&](const char* command, const Words& after) { return quiet_output(command + flags + after); };
    const json schedule = json::parse(with("schedule", "--format json"));
    const std::string line = "\norder: " + schedule["order"].get<std::string>() + "\n";
    EXPECT_THAT(with("schedule", {}), HasSubstr(line));
    EXPECT_THAT(with("simulate", {}), HasSubstr(line));
    const json simulation = json::parse(with("simulate", "--format json"));
    for (std::size_t w = 0; w < schedule["workers"].size(); ++w) {
      for (std::size_t i = 0; i < schedule["workers"][w].size(); ++i) {
        EXPECT_EQ(schedule["workers"][w][i]["micro_batch"], simulation["workers"][w]["ops"][i]["micro_batch"]);
        EXPECT_EQ(schedule["workers"][w][i]["stage"], simulation["workers"][w]["ops"][i]["stage"]);
      }
    }
  }
  EXPECT_FALSE(json::parse(four_stages_as_json()).contains("order")) << "Chimera has one order";
}

TEST(DocumentationTest, ShowsTheGoldenPicture) {
  const std::string picture = read_file(kSource / "tests/golden/chimera.txt");
  ASSERT_NE(picture, "");
  for (const char* page : {"README.md", "docs/schedules.md"})
    EXPECT_NE(read_file(kSource / page).find(picture), std::string::npos) << page << " shows another picture, or none";
}

TEST(ScheduleCommandTest, WritesAFile) {
  const Scratch scratch;
  auto arguments = kFourStages;
  arguments += Words{"--output", scratch.path("picture.txt")};
  EXPECT_EQ(quiet_output(arguments), "");
  EXPECT_EQ(read_file(scratch.path("picture.txt")), read_file(kSource / "tests/golden/chimera.txt"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path("")), {}), 1) << "nothing else is left";
}

TEST(ScheduleCommandTest, NeverReplacesANonRegularFile) {
  const Scratch scratch;
  std::filesystem::create_symlink("/dev/null", scratch.path("nothing"));
  auto arguments = kFourStages;
  arguments += Words{"--output", scratch.path("nothing")};
  EXPECT_EQ(quiet_output(arguments), "");
  EXPECT_TRUE(std::filesystem::is_character_file(scratch.path("nothing")));
}

TEST(SchedulesCommandTest, ListsTheParametersOfSchedules) {
  for (const json& schedule : read_json(quiet_output("schedules --format json"))) {
    const auto name = schedule["name"].get<std::string>();
    EXPECT_NE(quiet_output(split("schedule {} --stages 2 --micro-batches 4", name)), "") << name;
    EXPECT_THAT(quiet_output({"schedules"}), HasSubstr(name));
  }
}

/// 1F1B: 0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 1B1. Each 0B follows a 1B; in time, no other receive waits beside an op.
TEST(CheckCommandTest, SaysHowLongReceivesWaitOnGpus) {
  Words words = "check 1f1b --stages 2 --micro-batches 2";
  EXPECT_THAT(quiet_output(words), HasSubstr(": 0.50 receives wait beside an op of worker 0, the most\n"));
  words += "--format json";
  const json waits = read_json(quiet_output(words))["receive_waits"];
  EXPECT_EQ(waits["worker"], 0);
  EXPECT_DOUBLE_EQ(waits["beside_an_op"], 0.5);
  EXPECT_THAT(quiet_output("check gpipe --stages 1 --micro-batches 2"), ::testing::Not(HasSubstr("receives wait")));
}

TEST(CheckCommandTest, AcceptsAGeneratedSchedule) {
  EXPECT_THAT(quiet_output({"check", "-"}, four_stages_as_json()),
              HasSubstr("valid: chimera, 4 stages, 4 micro-batches"));
  EXPECT_EQ(quiet_output("check chimera --stages 4 --micro-batches 4"),
            quiet_output({"check", "-"}, four_stages_as_json()));
}

/// A fault in a schedule of four stages, and words of its counter-example.
struct Fault {
  std::string name;
  void (*apply)(json&);
  std::string words;
};

class CheckCommandFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(CheckCommandFaultTest, GivesACounterExample) {
  json schedule = read_json(four_stages_as_json());
  GetParam().apply(schedule);
  const ProgramResult text = run_program("check -", json_text(schedule));
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.output, HasSubstr(GetParam().words));
  const ProgramResult object = run_program("check - --format json", json_text(schedule));
  EXPECT_EQ(object.exit_code, 1);
  const json report = read_json(object.output);
  EXPECT_EQ(report["valid"], false);
  EXPECT_THAT(report["violations"][0]["message"].get<std::string>(), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    , CheckCommandFaultTest,
    ::testing::Values(
        Fault{"MissingOp", [](json& s) { s["workers"][0].erase(7); }, "0B1 (or 0I1 and 0W1) is missing"},
        Fault{"DoubledOp", [](json& s) { s["workers"][0].push_back(s["workers"][0][0]); },
              "worker 0, op 8 (0F0): the schedule has this op already"},
        Fault{"WrongWorker", [](json& s) { std::swap(s["workers"][0], s["workers"][1]); },
              "stage 1 of replica 0 is on worker 1"},
        Fault{"OutOfRange", [](json& s) { s["workers"][2][0]["stage"] = 4; }, "stage 4 is not in 0 to 3"},
        Fault{"TwoReplicas", [](json& s) { s["workers"][3][7]["replica"] = 0; }, "micro-batch 3 belongs to replica 1"},
        Fault{"Deadlock", [](json& s) { std::swap(s["workers"][0][0], s["workers"][0][7]); }, "deadlock, a cycle of"}),
    [](const auto& fault) { return fault.param.name; });

TEST(CheckCommandTest, NamesTheKindOfAViolation) {
  json schedule = read_json(four_stages_as_json());
  std::swap(schedule["workers"][1][0], schedule["workers"][1][5]);
  const ProgramResult text = run_program("check -", json_text(schedule));
  EXPECT_THAT(text.output, HasSubstr("worker 1 | [1B0] 2F2 1F1 2F3 2B2 [1F0] 2B3 1B1"));
  const json report = read_json(run_program("check - --format json", json_text(schedule)).output);
  EXPECT_EQ(report["violations"][0]["kind"], "cycle");
}

TEST(CheckCommandTest, NamesTheFirstOpOverALimit) {
  const ProgramResult result = run_program("check - --max-in-flight 3", four_stages_as_json());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("worker 1, op 3 (2F3): 4 stage units in flight, 3 allowed"));
  EXPECT_EQ(run_program("check - --max-in-flight 4", four_stages_as_json()).exit_code, 0);
  const Words bytes = "check - --activation-bytes 10 --weight-bytes 100";
  const auto with_memory = [&](const char* memory) {
    auto arguments = bytes;
    arguments += Words{"--memory", memory};
    return run_program(arguments, four_stages_as_json());
  };
  EXPECT_EQ(with_memory("240").exit_code, 0);
  EXPECT_THAT(with_memory("239").output, HasSubstr("240 bytes held, 239 allowed"));
  EXPECT_EQ(run_program(bytes, four_stages_as_json()).exit_code, 2);
}

TEST(CheckCommandTest, AccumulationOutOfSampleOrderIsANoteUnlessStrict) {
  json schedule = read_json(quiet_output("schedule gpipe --stages 2 --micro-batches 2 --format json"));
  for (json& ops : schedule["workers"]) std::swap(ops[2], ops[3]);
  const std::string noted = quiet_output({"check", "-"}, json_text(schedule));
  EXPECT_THAT(noted, HasSubstr("note (schedule): worker 0, op 3 (0B0): accumulates after micro-batch 1"));
  EXPECT_THAT(noted, HasSubstr("valid: gpipe"));
  const ProgramResult strict = run_program("check - --strict-order", json_text(schedule));
  EXPECT_EQ(strict.exit_code, 1);
  EXPECT_THAT(strict.output, HasSubstr("invalid: 2 violations"));
}

TEST(CheckCommandTest, RefusesInvalidScheduleFiles) {
  const std::string schedule = four_stages_as_json();
  const auto with = [&](const std::string& old_text, const std::string& new_text) {
    std::string changed = schedule;
    return changed.replace(changed.find(old_text), old_text.size(), new_text);
  };
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"", "is empty; expected a schedule in JSON or CSV"},
      {schedule.substr(0, 200), "JSON: parse error at line"},
      {schedule + "}", "JSON: parse error at line"},
      {"[]", "expected an object"},
      {with("\"op\": \"F\"", "\"op\": \"X\""), "workers[0][0].op: unknown op 'X'; known: F, B, I, W"},
      {with("\"op\": \"F\"", "\"op\": 1"), "workers[0][0].op: expected a text"},
      {with("\"stage\": 0, ", ""), "workers[0][0]: field 'stage' is missing"},
      {with("\"stage\": 0, ", "\"stage\": 0.5, "), "workers[0][0].stage: expected an integer"},
      {with("\"micro_batches\"", "\"micro_batch\""), "did you mean 'micro_batches'?"},
      {with("\"version\": 1", "\"version\": 2"), "version: this program reads version 1"},
  };
  for (const auto& [text, words] : texts) {
    const ProgramResult result = run_program("check -", text);
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_THAT(result.messages, HasSubstr(words));
    EXPECT_EQ(lines_of(result.messages).size(), 1U);
    EXPECT_EQ(result.output, "");
  }
}

TEST(ScheduleCommandTest, WritesBothCsvDialects) {
  const Words command = "schedule gpipe --stages 2 --micro-batches 1 --format csv";
  EXPECT_EQ(quiet_output(command), "0F0,0B0\n1F0,1B0\n");
  auto with_messages = command;
  with_messages.push_back("--communication");
  EXPECT_EQ(quiet_output(with_messages),
            "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n");
  const ProgramResult as_json =
      run_program("schedule gpipe --stages 2 --micro-batches 1 --format json --communication");
  EXPECT_EQ(as_json.exit_code, 2);
  EXPECT_THAT(as_json.messages, HasSubstr("--communication goes with --format csv"));
}

TEST(CheckCommandTest, ReadsCsvAndNotesDroppedActions) {
  const std::string cells = "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n";
  const ProgramResult result = succeeded(run_program("check -", cells));
  EXPECT_THAT(result.output, HasSubstr("valid: stdin, 2 stages, 1 micro-batch, 1 replica, 2 workers"));
  const auto notes = lines_of(result.messages);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_THAT(notes[0], HasSubstr("4 sends and receives are dropped"));
  EXPECT_THAT(notes[1], HasSubstr("1 REDUCE_GRAD are dropped"));
  const Scratch scratch;
  EXPECT_THAT(run_program({"check", scratch.write("mine.csv", cells)}).output, HasSubstr("valid: mine, "));
}

TEST(CheckCommandTest, ProvesPairsInOrderAndTogether) {
  const auto lines = lines_of(
      quiet_output({"check", "-"}, quiet_output("schedule dualpipe --stages 2 --micro-batches 4 --format json")));
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_THAT(lines[2], HasSubstr("program, per-direction channels: cannot deadlock"));
  EXPECT_THAT(lines[4], HasSubstr("program, per-direction channels, pairs together: cannot deadlock"));
  EXPECT_THAT(lines[5], HasSubstr("program, one serial queue per pair, pairs together: cannot deadlock"));
  const ProgramResult same = run_program("check -", "0F0,0B0\n(1F0;1B0)OVERLAP_F_B\n");
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_THAT(same.output, HasSubstr("paired with 1B0, which needs it"));
}

TEST(CheckCommandTest, RefusesJunkAfterCellsWithItsPlace) {
  const ProgramResult result = run_program("check -", "0F0,0B0\n1F0,1B0,junk\n");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(lines_of(result.messages).size(), 1U);
  EXPECT_THAT(result.messages, HasSubstr("row 2, column 3: 'junk' is not a cell"));
}

TEST(SimulateCommandTest, ReadsCsvWithReplicas) {
  auto arguments = kFourStages;
  arguments += "--format csv";
  EXPECT_EQ(read_json(quiet_output("simulate --file - --format json", quiet_output(arguments))),
            read_json(quiet_output("simulate chimera --stages 4 --micro-batches 4 --format json")));
}

TEST(SimulateCommandTest, TimesEightStagesLikeThePaper) {
  const json timeline =
      read_json(quiet_output("simulate chimera --stages 8 --micro-batches 8 --forward 1 --backward 2 --format json"));
  EXPECT_EQ(timeline["makespan"], 36);
  ASSERT_EQ(timeline["workers"].size(), 8U);
  for (const json& worker : timeline["workers"]) {
    EXPECT_EQ(worker["busy"], 8 * (1 + 2));
    EXPECT_EQ(worker["ops"].size(), 16U);
  }
}

TEST(SimulateCommandTest, ReadsASchedule) {
  EXPECT_EQ(read_json(quiet_output("simulate --file - --format json", four_stages_as_json())),
            read_json(quiet_output("simulate chimera --stages 4 --micro-batches 4 --format json")));
}

TEST(SimulateCommandTest, RefusesAnInvalidScheduleWithItsCounterExample) {
  json schedule = read_json(four_stages_as_json());
  schedule["workers"][0].erase(7);
  const ProgramResult result = run_program("simulate --file -", json_text(schedule));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("0B1 (or 0I1 and 0W1) is missing"));
}

TEST(ModelCommandTest, CountsBert48AndItsStages) {
  const json model = read_json(quiet_output("model bert-48 --stages 4 --format json"));
  EXPECT_EQ(model["parameters"], 669'790'012);
  ASSERT_EQ(model["stages"].size(), 4U);
  std::int64_t parameters = 0;
  for (const json& stage : model["stages"]) {
    parameters += stage["parameters"].get<std::int64_t>();
    EXPECT_EQ(stage["layers"], 12);
  }
  EXPECT_EQ(parameters, 669'790'012);
}

TEST(ModelCommandTest, ReadsAFileAndReplacesFields) {
  const Scratch scratch;
  const std::string file = scratch.write("mine.toml",
                                         "family = \"gpt2\"\nlayers = 4\nhidden = 64\nheads = 4\nfeed_forward = 256\n"
                                         "vocabulary = 256\npositions = 1024\ntied = false\n");
  const auto parameters = [](const Words& arguments) {
    return read_json(quiet_output(arguments))["parameters"].get<std::int64_t>();
  };
  EXPECT_EQ(parameters(split("model {} --format json", file)), parameters("model gpt2-tiny --format json"));
  EXPECT_EQ(parameters(split("model {} --tied true --format json", file)),
            parameters(split("model {} --format json", file)) - 256 * 64);
}

}  // namespace
}  // namespace chimera::testing
