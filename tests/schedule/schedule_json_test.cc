#include "schedule/schedule_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"
#include "support/message_of.h"
#include "support/schedules.h"

namespace chimera {
namespace {

TEST(ScheduleJsonTest, ReadsBackWhatItWrites) {
  testing::for_every_schedule(
      6, [](const Schedule& schedule) { EXPECT_EQ(schedule_from_json(to_json(schedule), "text"), schedule); });
}

TEST(ScheduleJsonTest, KeepsSizesAndWeightVersions) {
  Schedule schedule = find_generator("1f1b").generate({2, 3});
  schedule.micro_batch_scale = 0.5;
  schedule.updates = AsynchronousUpdates{.micro_batches = 1, .versions = 2};
  schedule.workers[1].back().weight_version = 2;
  EXPECT_EQ(schedule_from_json(to_json(schedule), "text"), schedule);
  schedule.updates->delay = 1;
  EXPECT_EQ(schedule_from_json(to_json(schedule), "text"), schedule);
}

/// A file of one worker with these ops.
std::string file_of(const std::string& ops) {
  return R"({"format": "chimera-schedule", "version": 1, "name": "x", "stages": 1, "micro_batches": 2,
    "replicas": [{"id": 0, "workers": [0]}], "workers": [[)" +
         ops + "]]}";
}

std::string op_of(const std::string& kind, const std::string& rest) {
  return R"({"op": ")" + kind + R"(", "stage": 0, "replica": 0, "micro_batch": 0)" + rest + "}";
}

TEST(ScheduleJsonTest, AnOpSaysThatItIsPairedWithTheNext) {
  const Schedule schedule =
      schedule_from_json(file_of(op_of("F", R"(, "paired": true)") + "," + op_of("B", R"(, "paired": false)")), "text");
  EXPECT_TRUE(schedule.workers[0][0].paired);
  EXPECT_FALSE(schedule.workers[0][1].paired);
  EXPECT_EQ(schedule_from_json(to_json(schedule), "text"), schedule);
  EXPECT_EQ(to_json(without_pairs(schedule)).find("paired"), std::string::npos);
}

TEST(ScheduleJsonTest, OpsNameTheirSliceIfThereAreSeveral) {
  const Schedule schedule = find_generator("1f1b").generate({.stages = 1, .micro_batches = 1, .slices = 2});
  const std::string text = to_json(schedule);
  EXPECT_THAT(text, ::testing::HasSubstr(R"("micro_batches": 1,
 "slices": 2,)"));
  EXPECT_THAT(text, ::testing::HasSubstr(R"({"op": "F", "stage": 0, "replica": 0, "micro_batch": 0, "slice": 1})"));
  EXPECT_EQ(schedule_from_json(text, "text"), schedule);
  EXPECT_EQ(to_json(find_generator("1f1b").generate({2, 2})).find("slice"), std::string::npos);
}

TEST(ScheduleJsonTest, SlicesOfTheFileAndOfItsOpsGoTogether) {
  const auto message_of = [](std::string text, const std::string& slices) -> std::string {
    text.insert(text.find("\"replicas\""), slices);
    return testing::message_of([&] { (void)schedule_from_json(text, "text"); });
  };
  const std::string sliced = file_of(op_of("F", R"(, "slice": 0)"));
  EXPECT_EQ(message_of(sliced, R"("slices": 2, )"), "");
  EXPECT_EQ(message_of(sliced, ""),
            "text: workers[0][0].slice: only ops of a schedule with slices have it (\"slices\": 2 or more)");
  EXPECT_EQ(message_of(file_of(op_of("F", "")), R"("slices": 2, )"), "text: workers[0][0]: field 'slice' is missing");
  EXPECT_EQ(message_of(sliced, R"("slices": 257, )"), "text: slices: expected 1 to 256, found 257");
}

TEST(ScheduleJsonTest, APairIsTwoOps) {
  const std::string paired = op_of("F", R"(, "paired": true)");
  const auto message_of = [](const std::string& ops) -> std::string {
    return testing::message_of([&] { (void)schedule_from_json(file_of(ops), "text"); });
  };
  EXPECT_EQ(message_of(paired), "text: workers[0][0].paired: its worker has no next op to pair it with");
  EXPECT_EQ(message_of(paired + "," + paired + "," + op_of("B", "")),
            "text: workers[0][1].paired: the op before is paired with this one already");
  EXPECT_EQ(message_of(op_of("F", R"(, "paired": 1)")),
            "text: workers[0][0].paired: expected true or false, found number");
}

TEST(ScheduleJsonTest, ReadsInvalidSchedulesUnchanged) {
  const Schedule schedule = schedule_from_json(R"({"format": "chimera-schedule", "version": 1, "name": "mine",
    "stages": 2, "micro_batches": 1, "replicas": [{"id": 0, "workers": [0, 7]}],
    "workers": [[{"op": "W", "stage": 1000000000000, "replica": 99, "micro_batch": -5}], []]})",
                                               "text");
  EXPECT_EQ(schedule.workers[0][0].kind, OpKind::BackwardWeight);
  EXPECT_EQ(schedule.workers[0][0].stage.value(), 2147483647);
  EXPECT_EQ(schedule.workers[0][0].micro_batch.value(), -1);
  EXPECT_EQ(schedule.placement.worker_of[0][1], WorkerId(7));
}

TEST(ScheduleJsonTest, ReadsFieldsInAnyOrder) {
  const Schedule schedule =
      schedule_from_json(R"({"workers": [[{"micro_batch": 0, "replica": 0, "stage": 0, "op": "F"}]],
    "replicas": [{"workers": [0], "id": 0}], "micro_batches": 1, "stages": 1, "name": "x", "version": 1,
    "format": "chimera-schedule"})",
                         "text");
  EXPECT_EQ(schedule.workers[0][0], Op{});
  EXPECT_EQ(schedule.placement.worker_of[0], std::vector{WorkerId(0)});
}

TEST(ScheduleJsonTest, AFileHasAtMostTenMillionOps) {
  const std::string text(static_cast<std::size_t>(kMaxOpsOfFile) + 1, '{');
  EXPECT_THAT(
      [&] { (void)schedule_from_json(text, "text"); },
      ::testing::ThrowsMessage<ConfigError>("text: more than 10000000 ops and replicas; a file has at most as many"));
}

struct BadJson {
  const char* replace;
  const char* with;
  const char* message;
};

class BadScheduleJsonTest : public ::testing::TestWithParam<BadJson> {};

TEST_P(BadScheduleJsonTest, SaysTheErrorAndItsPlace) {
  std::string text = to_json(find_generator("gpipe").generate({2, 1}));
  const auto found = text.find(GetParam().replace);
  ASSERT_NE(found, std::string::npos) << text;
  text.replace(found, std::string(GetParam().replace).size(), GetParam().with);
  try {
    (void)schedule_from_json(text, "file.json");
    FAIL() << text;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("file.json: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(GetParam().message));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, BadScheduleJsonTest,
    ::testing::Values(
        BadJson{"\"stages\": 2", "\"stages\": 2.5", "stages: expected an integer, found 2.5"},
        BadJson{"\"stages\": 2,", "", "field 'stages' is missing"},
        BadJson{"\"stages\": 2", "\"stages\": 0", "expected 1 to 100000000, found 0"},
        BadJson{"\"stages\": 2", "\"stages\": 90000000", "more than"},
        BadJson{"\"version\": 1", "\"version\": 2", "reads version 1, found 2"},
        BadJson{"chimera-schedule", "other", "expected \"chimera-schedule\""},
        BadJson{"\"op\": \"F\"", "\"op\": \"X\"", "workers[0][0].op: unknown op 'X'"},
        BadJson{"\"op\": \"F\"", "\"op\": 3", "workers[0][0].op: expected a text"},
        BadJson{"\"micro_batch\": 0", "\"micro_batsh\": 0", "did you mean 'micro_batch'?"},
        BadJson{"\"name\"", "\"synchronos\": false, \"name\"", "did you mean 'synchronous'?"},
        BadJson{"\"name\"", "\"synchronous\": 0, \"name\"", "synchronous: expected true or false"},
        BadJson{"\"name\"", "\"synchronous\": false, \"name\"", "'micro_batches_per_update' is missing"},
        BadJson{"\"name\"", "\"weight_versions\": 2, \"name\"", "only an asynchronous schedule"},
        BadJson{"\"name\"", "\"update_delay\": 1, \"name\"", "only an asynchronous schedule"},
        BadJson{"\"name\"", "\"order\": \"auto\", \"name\"", "order: expected \"slots\" or \"deepest\""},
        BadJson{"\"name\"", "\"late_forwards\": 1, \"name\"", "late_forwards: expected true or false"},
        BadJson{"\"name\"", "\"micro_batch_scale\": 0, \"name\"", "expected a number above 0"},
        BadJson{"\"micro_batch\": 0", "\"micro_batch\": 0, \"weight_version\": 0",
                "workers[0][0].weight_version: only ops of an asynchronous schedule"},
        BadJson{"\"name\": ", "\"name\": \"a\", \"name\": ", "name: the field is given twice"},
        BadJson{"\"name\"", "\"a\\nb\": 1, \"name\"", "unknown field 'a\\x0ab'"},
        BadJson{"{\"op\"", "{\"op\": \"F\", \"op\"", "workers[0][0].op: the field is given twice"},
        BadJson{"\"workers\": [0, 1]", "\"workers\": [0, [1]]", "replicas[0].workers[1]: expected an integer"},
        BadJson{"\"workers\": [\n", "\"workers\": [3,\n", "workers[0]: expected an array, found number"},
        BadJson{"\"op\": \"F\"", "\"op\": null", "workers[0][0].op: expected a text, found null"},
        BadJson{"\"name\"", "\"synchronous\": false, \"micro_batches_per_update\": 1, \"weight_versions\": 1, \"name\"",
                "workers[0][0]: field 'weight_version' is missing"},
        BadJson{"{\"id\": 0", "{\"id\": 1", "replicas[0].id"}, BadJson{"]}\n", "]} x", "JSON"},
        BadJson{"]}\n", "", "JSON"}));

/// Parsing and printing a value are recursive.
TEST(ScheduleJsonTest, RefusesExcessiveNesting) {
  EXPECT_THAT([] { (void)parse_json(std::string(200'000, '['), "deep.json"); },
              ::testing::ThrowsMessage<ConfigError>("deep.json: more than 100 nested objects and arrays"));
}

}  // namespace
}  // namespace chimera
