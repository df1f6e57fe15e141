// Files written by PyTorch 2.11 (tools/record_torch_csv): 4 workers, 8 micro-batches.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_schedule.h"
#include "generate/registry.h"
#include "schedule/schedule_csv.h"
#include "support/paths.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ReadSchedule read_fixture(const std::string& file) {
  return schedule_from_csv(testing::read_file(testing::source_path("/tests/fixtures/torch_csv/") + file), file);
}

std::string text_with_plain_line_ends(const std::string& file) {
  std::string text = testing::read_file(testing::source_path("/tests/fixtures/torch_csv/") + file);
  std::erase(text, '\r');
  return text;
}

/// Stages of each worker, ascending, as text.
std::vector<std::string> stages_of_workers(const Schedule& schedule) {
  std::vector<std::string> stages(schedule.workers.size());
  for (std::int64_t s = 0; s < schedule.stages; ++s)
    stages[schedule.placement.worker(ReplicaId(0), StageId(s)).index()] += std::to_string(s);
  return stages;
}

class TorchCsvFixtureTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchCsvFixtureTest, BothDialectsReadAsTheSameSoundSchedule) {
  const std::string name = GetParam();
  const ReadSchedule plain = read_fixture(name + ".csv");
  EXPECT_THAT(check(plain.schedule), IsEmpty());
  EXPECT_EQ(plain.schedule.stages, 8);
  EXPECT_EQ(plain.schedule.micro_batches, 8);
  const ReadSchedule with_messages = read_fixture(name + ".comms.csv");
  EXPECT_EQ(with_messages.schedule, plain.schedule);
  ASSERT_GE(with_messages.notes.size(), 3U);
  EXPECT_THAT(with_messages.notes[0], HasSubstr("sends and receives are dropped"));
  EXPECT_THAT(with_messages.notes[1], HasSubstr("UNSHARD and RESHARD are dropped"));
  EXPECT_THAT(with_messages.notes[2], HasSubstr("8 REDUCE_GRAD are dropped"));
}

INSTANTIATE_TEST_SUITE_P(, TorchCsvFixtureTest,
                         ::testing::Values("looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv",
                                           "dualpipev"));

TEST(TorchCsvFixturesTest, PlacementFollowsTheRows) {
  EXPECT_THAT(stages_of_workers(read_fixture("interleaved_1f1b.csv").schedule), ElementsAre("04", "15", "26", "37"));
  EXPECT_THAT(stages_of_workers(read_fixture("zbv.csv").schedule), ElementsAre("07", "16", "25", "34"));
}

TEST(TorchCsvFixturesTest, DualPipeVEqualsOursWithPairs) {
  Schedule ours = find_generator("dualpipev").generate({4, 8});
  ours.name = "csv";
  EXPECT_TRUE(has_pairs(ours));
  const ReadSchedule theirs = read_fixture("dualpipev.csv");
  EXPECT_EQ(theirs.schedule, ours);
  EXPECT_TRUE(theirs.notes.empty());
  EXPECT_EQ(to_csv(ours), text_with_plain_line_ends("dualpipev.csv"));
}

TEST(TorchCsvFixturesTest, GPipeEqualsOurs) {
  Schedule ours = find_generator("gpipe").generate({4, 8});
  ours.name = "csv";
  EXPECT_EQ(read_fixture("gpipe.csv").schedule, ours);
}

TEST(TorchCsvFixturesTest, FindsTheFaultOfPyTorchs1F1B) {
  const auto violations = check(read_fixture("1f1b.csv").schedule);  // the last worker has forwards 3F1 .. 3F8
  ASSERT_FALSE(violations.empty());
}

}  // namespace
}  // namespace chimera
