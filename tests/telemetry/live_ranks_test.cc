#include "telemetry/top_view.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/error.h"
#include "launch/flight/flight_record.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LiveRanksTest, FindsTheWriterOfTheMetricsAndTheStatesOfRanks) {
  const testing::Scratch folder;
  const std::string path = folder.write("metrics.jsonl", "");
  EXPECT_FALSE(LiveRun::find(path));
  const FileDescriptor reader(::open(path.c_str(), O_RDONLY));
  EXPECT_FALSE(LiveRun::find(path)) << "who only reads is no run";
  const FileDescriptor writer(::open(path.c_str(), O_WRONLY | O_APPEND));
  ProgressPage page(2, 30);
  page.note(0, {.phase = RankProgress::Phase::Joining});
  page.note(1, {.phase = RankProgress::Phase::Steps, .step = 7});
  const auto run = LiveRun::find(path);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->process(), ::getpid());
  const auto ranks = run->watch(std::chrono::milliseconds(0));
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].doing, "joining the other ranks");
  EXPECT_EQ(ranks[0].waiting, 1);
  EXPECT_EQ(ranks[1].step, 7);
  EXPECT_EQ(ranks[1].waiting, 0);
  EXPECT_EQ(run->steps(), 30);
  page.set_process(1, ::getpid());
  const auto seen = run->watch(std::chrono::milliseconds(0));
  EXPECT_EQ(seen[1].process, ::getpid());
  EXPECT_TRUE(seen[1].is_here);
  EXPECT_EQ(seen[0].doing, "not seen here");
  page.set_process(0, 0x7fffffff);  // No process has such a number
  EXPECT_EQ(run->watch(std::chrono::milliseconds(0))[0].doing, "lost");
}

TEST(LiveRanksTest, RefusesAFileOfAnotherKind) {
  const testing::Scratch folder;
  const std::string path = folder.write("odd", "nine bytes");
  EXPECT_THROW(ProgressPage(FileDescriptor(::open(path.c_str(), O_RDONLY)), true), Error);
}

/// Writes a flight record with three complete steps, each with one forward of stage 0 that lasts `milliseconds`.
void record_forwards(const std::string& path, std::int64_t milliseconds) {
  constexpr int kEvents = 10;
  {
    FlightRecorder recorder(path);
    for (int i = 0; i < kEvents; ++i) {
      const auto kind = i % 2 == 0 ? InstructionKind::Compute : InstructionKind::ReduceScalars;
      recorder.note({RankProgress::Phase::Steps, 7 + i / 2, {.kind = kind}});
    }
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (int i = 0; i < kEvents; ++i) {  // the recorder notes them without a pause
    const std::int64_t time = (i / 2 * (milliseconds + 1) + i % 2 * milliseconds) * 1'000'000;
    file.seekp(static_cast<std::streamoff>(64 + static_cast<std::size_t>(i) * sizeof(FlightEvent)));
    file.write(reinterpret_cast<const char*>(&time), sizeof time);
  }
}

TEST(LiveRanksTest, StragglersAreThoseOfTheFlightRecords) {
  const testing::Scratch folder;
  const std::string path = folder.write("metrics.jsonl", "{\"step\": 1}\n");
  const FileDescriptor writer(::open(path.c_str(), O_WRONLY | O_APPEND));
  EXPECT_THAT(observe_run(path, {}).stragglers, IsEmpty()) << "there are no records";
  const std::string flight = folder.path("flight");
  begin_flight(flight, {.schedule = "gpipe", .ranks = {2, GroupWorker{GroupId(0), WorkerId(0)}}});
  for (const int rank : {0, 1}) record_forwards(flight_path(flight, rank), rank == 1 ? 20 : 10);
  EXPECT_THAT(observe_run(path, {}).stragglers, ElementsAre(1));
  folder.write("flight/job.json", "{");
  EXPECT_THAT(observe_run(path, {}).stragglers, IsEmpty()) << "the job is about to replace its records";
}

}  // namespace
}  // namespace chimera
