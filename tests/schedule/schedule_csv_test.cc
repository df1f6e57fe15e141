#include "schedule/schedule_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "passes/lower.h"
#include "schedule/schedule_json.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

ReadSchedule read(const std::string& text) { return schedule_from_csv(text, "text"); }

/// Ops of one worker, such as `0F0 0B0`.
std::string ops_of(const Schedule& schedule, std::size_t worker) {
  std::string text;
  for (const Op& op : schedule.workers[worker]) text += (text.empty() ? "" : " ") + to_text(op);
  return text;
}

TEST(ScheduleCsvTest, WritesASingleReplicaAsPyTorchDoes) {
  EXPECT_EQ(to_csv(find_generator("1f1b").generate({2, 3})),
            "0F0,0F1,0B0,0F2,0B1,0B2\n"
            "1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(ScheduleCsvTest, SpellsOutMessagesForPyTorch) {
  const Schedule schedule = find_generator("gpipe").generate({2, 2});
  const LoweringOptions as_pytorch = {.discipline = ChannelDiscipline::SerialPair, .receives_ahead = 0};
  EXPECT_EQ(to_csv(schedule, lower(schedule, as_pytorch)),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD\n");
}

TEST(ScheduleCsvTest, WritesReplicasInAFirstLine) {
  EXPECT_EQ(to_csv(find_generator("chimera").generate({2, 2})),
            R"(# {"format": "chimera-schedule", "version": 1, "name": "chimera", "stages": 2, "micro_batches": 2, )"
            R"("late_forwards": true, "replicas": [{"id": 0, "workers": [0, 1]}, {"id": 1, "workers": [1, 0]}]})"
            "\n0F0,1F1r1,1B1r1,0B0\n0F1r1,1F0,1B0,0B1r1\n");
}

TEST(ScheduleCsvTest, WritesSlicesWithAFirstLine) {
  const Schedule schedule = find_generator("gpipe").generate({.stages = 2, .micro_batches = 1, .slices = 2});
  EXPECT_EQ(to_csv(schedule),
            R"(# {"format": "chimera-schedule", "version": 1, "name": "gpipe", "stages": 2, "micro_batches": 1, )"
            R"("slices": 2, "replicas": [{"id": 0, "workers": [0, 1]}]})"
            "\n0F0.0,0F0.1,0B0.1,0B0.0\n1F0.0,1F0.1,1B0.1,1B0.0\n");
  const std::string first_line = to_csv(schedule).substr(0, to_csv(schedule).find('\n') + 1);
  EXPECT_THROW((void)read(first_line + "0F0\n"), ConfigError);
  EXPECT_THROW((void)read(first_line + "0F0.\n"), ConfigError);
  EXPECT_THROW((void)read("0F0.1\n"), ConfigError);
}

TEST(ScheduleCsvTest, ReadsBackWhatItWrites) {
  testing::for_every_schedule(5, [](Schedule schedule) {
    const Schedule back = read(to_csv(schedule)).schedule;
    if (back.name == "csv") schedule.name = "csv";  // a plain file lacks only the name
    EXPECT_EQ(back, schedule);
    if (schedule.updates) return;
    EXPECT_EQ(read(to_csv(schedule, lower(schedule, {.pairs = Pairs::Together}))).schedule, schedule)
        << "with messages";
  });
}

TEST(ScheduleCsvTest, ReadsBackFieldsOfTheFirstLine) {
  const Schedule plain = find_generator("1f1b").generate({2, 3});
  std::vector<Schedule> schedules(9, plain);
  schedules[0].updates = AsynchronousUpdates{.micro_batches = 1, .versions = 2};
  schedules[0].workers[1].back().weight_version = 2;
  schedules[1].micro_batch_scale = 0.5;
  schedules[2].stages = 3;
  schedules[3].workers[0].clear();
  schedules[4].workers[1][0].replica = ReplicaId(7);
  schedules[5].workers[1][0].stage = StageId(std::numeric_limits<std::int32_t>::max());
  schedules[6] =
      Schedule{.name = "two\nlines, \"quoted\"", .stages = 1, .micro_batches = 1, .placement = {}, .workers = {}};
  schedules[7].late_forwards = true;
  schedules[8].order = OpOrder::Deepest;
  for (const Schedule& schedule : schedules) {
    EXPECT_THAT(to_csv(schedule), StartsWith("# {"));
    EXPECT_EQ(read(to_csv(schedule)).schedule, schedule);
  }
}

TEST(ScheduleCsvTest, InfersTheShapeFromThePositionsOfOps) {
  const Schedule schedule = read("0F0,3F0,3B0,0B0\r\n1F0,2F0,2I0,1B0,2W0\r\n").schedule;
  EXPECT_EQ(schedule.stages, 4);
  EXPECT_EQ(schedule.micro_batches, 1);
  EXPECT_THAT(schedule.placement.worker_of,
              ElementsAre(ElementsAre(WorkerId(0), WorkerId(1), WorkerId(1), WorkerId(0))));
  EXPECT_EQ(ops_of(schedule, 1), "1F0 2F0 2I0 1B0 2W0");
}

TEST(ScheduleCsvTest, SkipsIdleCells) {
  const ReadSchedule result = read(",0F0, ,0B0,\n,,1F0,\t,1B0");
  EXPECT_EQ(ops_of(result.schedule, 0), "0F0 0B0");
  EXPECT_EQ(ops_of(result.schedule, 1), "1F0 1B0");
  EXPECT_TRUE(result.notes.empty());
}

TEST(ScheduleCsvTest, AnOverlappedCellIsAPair) {
  const ReadSchedule result = read("0F0,0F1,(0F2;0B0)OVERLAP_F_B,( 0F3 ; 0I1 )OVERLAP_F_B");
  EXPECT_EQ(ops_of(result.schedule, 0), "0F0 0F1 0F2 0B0 0F3 0I1");
  std::vector<bool> paired;
  for (const Op& op : result.schedule.workers[0]) paired.push_back(op.paired);
  EXPECT_THAT(paired, ElementsAre(false, false, true, false, true, false));
  EXPECT_TRUE(result.notes.empty());
  EXPECT_EQ(to_csv(result.schedule), "0F0,0F1,(0F2;0B0)OVERLAP_F_B,(0F3;0I1)OVERLAP_F_B\n");
}

TEST(ScheduleCsvTest, APairInAProgramHasItsMessagesAroundIt) {
  const Schedule schedule = read("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n").schedule;
  LoweringOptions options = {.discipline = ChannelDiscipline::SerialPair, .receives_ahead = 0};
  EXPECT_THAT(to_csv(schedule, lower(schedule, options)),
              StartsWith("0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0RECV_B0,0B0,"));
  options.pairs = Pairs::Together;
  EXPECT_THAT(to_csv(schedule, lower(schedule, options)),
              StartsWith("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,(0F2;0B0)OVERLAP_F_B,0SEND_F2,"));
}

TEST(ScheduleCsvTest, NotesDroppedActions) {
  const ReadSchedule result = read(
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n");
  EXPECT_EQ(ops_of(result.schedule, 0), "0F0 0B0");
  EXPECT_EQ(ops_of(result.schedule, 1), "1F0 1B0");
  EXPECT_THAT(result.notes, ElementsAre(StartsWith("text: 4 sends and receives are dropped"),
                                        StartsWith("text: 4 UNSHARD and RESHARD are dropped"),
                                        StartsWith("text: 2 REDUCE_GRAD are dropped")));
}

TEST(ScheduleCsvTest, DropsWaitsAndJoinedMessagesLikeSends) {
  const ReadSchedule result = read(
      "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F_RECV_B1,0WAIT_RECV_B0,0B0,0B1\n"
      "1WAIT_RECV_F0,1F0,1B0,1SEND_B_RECV_F0,1WAIT_SEND_B0,1F1,1B1\n");
  EXPECT_EQ(ops_of(result.schedule, 0), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(ops_of(result.schedule, 1), "1F0 1B0 1F1 1B1");
  EXPECT_THAT(result.notes, ElementsAre(StartsWith("text: 7 sends and receives are dropped")));
}

TEST(ScheduleCsvTest, ReadsInvalidSchedulesUnchanged) {
  const Schedule schedule = read("0F0,0F0\n0B0,4W4\n0F1").schedule;
  EXPECT_EQ(schedule.stages, 5);
  EXPECT_EQ(schedule.placement.worker(ReplicaId(0), StageId(0)), WorkerId(0)) << "the row where it stands first";
  EXPECT_EQ(ops_of(schedule, 1), "0B0 4W4");
}

struct BadCsv {
  const char* text;
  const char* message;
};

class BadScheduleCsvTest : public ::testing::TestWithParam<BadCsv> {};

TEST_P(BadScheduleCsvTest, SaysRowAndColumn) {
  try {
    (void)read(GetParam().text);
    FAIL() << GetParam().text;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith(std::string("text: ") + GetParam().message));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

constexpr const char* kHeader =
    R"(# {"format": "chimera-schedule", "version": 1, "name": "x", "stages": 1, "micro_batches": 1, "replicas": []})";
const std::string kBadSuffix = std::string(kHeader) + "\n0F0,0B0r";
const std::string kVersionWithoutUpdates = std::string(kHeader) + "\n0F0v1";
const std::string kSecondHeader = std::string(kHeader) + "\n0F0\n" + kHeader;
const std::string kHeaderJunk = std::string(kHeader) + "x\n0F0";
const std::string kLongCell = "0F0," + std::string(1'000'000, '0');

INSTANTIATE_TEST_SUITE_P(
    Grammar, BadScheduleCsvTest,
    ::testing::Values(
        BadCsv{"", "row 1, column 1: no op in the text"}, BadCsv{",,\n", "row 1, column 1: no op"},
        BadCsv{"\n0F0", "row 1, column 1: expected the ops of worker 0"},
        BadCsv{"0F0,0B0\n1F0,junk", "row 2, column 2: 'junk' is not a cell"},
        BadCsv{"0F0,0B0x", "row 1, column 2: '0B0x' is not a cell"},
        BadCsv{"0F0 0B0", "row 1, column 1: '0F0 0B0' is not a cell"}, BadCsv{"0F0;0B0", "row 1, column 1"},
        BadCsv{"0F0,0B", "row 1, column 2: '0B' is not a cell"}, BadCsv{"F0", "row 1, column 1"},
        BadCsv{"-1F0", "row 1, column 1"}, BadCsv{"0f0", "row 1, column 1"},
        BadCsv{"0F0r0", "row 1, column 1: '0F0r0' is not a cell"}, BadCsv{"\"0F0\"", "row 1, column 1"},
        BadCsv{"0F0,\x01\xFF", "row 1, column 2: '\\x01\\xff'"}, BadCsv{"0F0\r0B0", "row 1, column 1: '0F0\\x0d0B0'"},
        BadCsv{"0SEND_F", "row 1, column 1"}, BadCsv{"0F0,0UNSHARD0", "row 1, column 2"},
        BadCsv{"0F0,0SEND_X0", "row 1, column 2"}, BadCsv{"0F0,0WAIT_SEND_F", "row 1, column 2: '0WAIT_SEND_F' is not"},
        BadCsv{"0F0,0BW0",
               "row 1, column 2: '0BW0' is not a cell of a schedule; in torch 2.5 and older, BW is the whole"},
        BadCsv{"0F0,0BW", "row 1, column 2: '0BW' is not a cell of a schedule; expected"},
        BadCsv{"(0F0;0B0)", "row 1, column 1"}, BadCsv{"(0F0)OVERLAP_F_B", "row 1, column 1"},
        BadCsv{"(0F0;0B0;0W0)OVERLAP_F_B", "row 1, column 1"}, BadCsv{"(0F0;)OVERLAP_F_B", "row 1, column 1"},
        BadCsv{";)OVERLAP_F_B", "row 1, column 1"}, BadCsv{"()OVERLAP_F_B", "row 1, column 1"},
        BadCsv{"(", "row 1, column 1"},
        BadCsv{"0F0\n0B99999999999999999999", "row 2, column 1: micro-batch 2147483647 in a text of 2 ops"},
        BadCsv{"0F0,2F0", "row 1, column 2: stage 2 in a text of 2 ops"}, BadCsv{"# {}", "top level"},
        BadCsv{"# \n0F0", "JSON"}, BadCsv{"#", "JSON"},
        BadCsv{kBadSuffix.c_str(), "row 2, column 2: '0B0r' is not a cell"},
        BadCsv{kVersionWithoutUpdates.c_str(), "row 2, column 1: '0F0v1' is not a cell"},
        BadCsv{kSecondHeader.c_str(), "row 3, column 1: '# {"}, BadCsv{kHeaderJunk.c_str(), "JSON: parse error"},
        BadCsv{kLongCell.c_str(), "row 1, column 2: '0000"}));

TEST(ScheduleTextTest, BlankLinesAtTheEndAreNoWorkers) {
  for (const char* name : {"1f1b", "chimera"}) {
    const Schedule schedule = find_generator(name).generate({4, 4});
    for (const char* end : {"", "\n", "\r\n", "\n \n\n"}) {
      const std::string text = to_csv(schedule) + end;
      EXPECT_EQ(schedule_from_text(text, "text").schedule.workers, schedule.workers) << name;
    }
  }
}

TEST(ScheduleTextTest, TellsJsonFromCsvByItsFirstCharacter) {
  const Schedule schedule = find_generator("chimera").generate({4, 4});
  const std::string mark = "\xEF\xBB\xBF";  // as Excel writes it
  for (const std::string& text : {to_json(schedule), "\n  " + to_json(schedule), to_csv(schedule),
                                  mark + to_json(schedule), mark + to_csv(schedule)}) {
    EXPECT_EQ(schedule_from_text(text, "text").schedule, schedule);
  }
  EXPECT_THROW((void)schedule_from_text("  \n", "text"), ConfigError);
}

}  // namespace
}  // namespace chimera
