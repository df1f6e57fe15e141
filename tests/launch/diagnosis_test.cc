#include "launch/flight/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Scratch;
using ::testing::ThrowsMessage;

using Events = std::vector<FlightEvent>;

Op op(OpKind kind, std::int64_t stage, std::int64_t micro_batch) {
  return {kind, ReplicaId(0), StageId(stage), MicroBatchId(micro_batch)};
}

constexpr std::int64_t kMillisecond = 1'000'000;

FlightEvent at(std::int64_t milliseconds, std::int64_t step, const Instruction& instruction) {
  return {milliseconds * kMillisecond, {RankProgress::Phase::Steps, step, instruction}};
}

Instruction transfer(InstructionKind kind, const Op& moved, std::int64_t peer) {
  return {.kind = kind, .op = moved, .peer = WorkerId(peer)};
}

Instruction sum_of(InstructionKind kind, std::int64_t group) {
  return {.kind = kind, .group = ParameterGroupId(group)};
}

Instruction compute(const Op& what) { return {.kind = InstructionKind::Compute, .op = what}; }

/// Two workers in two groups: ranks 0, 2 and ranks 1, 3. The replicas all-reduce stage 0 and stage 1.
Flight flight(std::vector<std::optional<Events>> ranks) {
  FlightJob job{.schedule = "1f1b", .ranks = {}, .sums = {{RankId(0), RankId(1)}, {RankId(2), RankId(3)}}};
  for (const int worker : {0, 1}) {
    for (const int group : {0, 1}) job.ranks.push_back({GroupId(group), WorkerId(worker)});
  }
  return {.folder = "run/flight", .job = job, .verdict = {}, .ranks = std::move(ranks)};
}

const Op kF1 = op(OpKind::Forward, 0, 1);

/// Rank 3 hangs in its first op. Rank 1 waits for a gradient from it, rank 0 for the all-reduce with rank 1, and rank 2
/// for the losses.
Flight hanging() {
  return flight({Events{at(1, 4, compute(kF1)), at(5, 4, sum_of(InstructionKind::StartAllReduce, 0)),
                        at(6, 4, sum_of(InstructionKind::WaitAllReduce, 0))},
                 Events{at(1, 4, transfer(InstructionKind::StartSend, kF1, 1)),
                        at(7, 4, transfer(InstructionKind::WaitReceive, op(OpKind::Backward, 1, 1), 1))},
                 Events{at(9, 4, {.kind = InstructionKind::ReduceScalars})}, Events{at(2, 4, compute(kF1))}});
}

TEST(DiagnosisTest, RankThatDoesNotWaitIsGuilty) {
  const Diagnosis diagnosis = diagnose(hanging());
  EXPECT_THAT(diagnosis.ranks[0].waits_for, ElementsAre(1));
  EXPECT_THAT(diagnosis.ranks[1].waits_for, ElementsAre(3)) << "worker 1 of its own group";
  EXPECT_THAT(diagnosis.ranks[2].waits_for, ElementsAre(0, 1, 3));
  EXPECT_THAT(diagnosis.ranks[3].waits_for, IsEmpty());
  EXPECT_EQ(diagnosis.culprit, 3);
  EXPECT_TRUE(diagnosis.is_inferred);
  EXPECT_EQ(diagnosis.op, "0F1 in step 4");
}

/// Two workers of two ranks each: messages and sums are among ranks of equal t.
TEST(DiagnosisTest, RanksThatShareLayersHaveLanes) {
  Flight shared = flight({Events{at(5, 4, sum_of(InstructionKind::WaitAllReduce, 0))},
                          Events{at(7, 4, transfer(InstructionKind::WaitReceive, op(OpKind::Backward, 1, 1), 1))},
                          Events{at(9, 4, {.kind = InstructionKind::ReduceScalars})}, Events{at(2, 4, compute(kF1))}});
  shared.job.ranks = {
      {GroupId(0), WorkerId(0)}, {GroupId(0), WorkerId(0)}, {GroupId(0), WorkerId(1)}, {GroupId(0), WorkerId(1)}};
  shared.job.sums = {{RankId(0), RankId(2)}, {RankId(1), RankId(3)}};
  shared.job.tensor_parallel = 2;
  const Diagnosis diagnosis = diagnose(shared);
  EXPECT_THAT(diagnosis.ranks[0].waits_for, ElementsAre(2));
  EXPECT_THAT(diagnosis.ranks[1].waits_for, ElementsAre(3));
  EXPECT_THAT(to_text(diagnosis, shared, 0), HasSubstr("guilty: rank 3 (worker 1, t 1), at 0F1"));
}

TEST(DiagnosisTest, RanksThatWereLostBeforeAreNeitherGuiltyNorWaitedFor) {
  Flight rerouted = hanging();
  rerouted.ranks[2] = Events{at(1, 2, compute(kF1))};
  rerouted.job.ranks = {{GroupId(0), WorkerId(0)}, {GroupId(0), WorkerId(2)}, kAbsent, {GroupId(0), WorkerId(1)}};
  rerouted.job.sums = {{RankId(0), RankId(1)}, {RankId(3)}};
  rerouted.ranks[0] = Events{at(9, 4, {.kind = InstructionKind::ReduceScalars})};
  const Diagnosis diagnosis = diagnose(rerouted);
  EXPECT_THAT(diagnosis.ranks[0].waits_for, ElementsAre(1, 3));
  EXPECT_THAT(diagnosis.ranks[1].waits_for, ElementsAre(3)) << "worker 1";
  EXPECT_EQ(diagnosis.culprit, 3);
  EXPECT_THAT(to_text(diagnosis, rerouted, 0), HasSubstr("0F1 in step 2, then lost "));
}

TEST(DiagnosisTest, RankThatTheLauncherBlamedIsGuilty) {
  Flight blamed = hanging();
  blamed.verdict = {
      .reason = "rank 1 failed at 1B1: out of memory", .culprit = 1, .op = "1B1", .nanoseconds = 107 * kMillisecond};
  const Diagnosis diagnosis = diagnose(blamed);
  EXPECT_EQ(diagnosis.culprit, 1);
  EXPECT_FALSE(diagnosis.is_inferred);
  EXPECT_EQ(diagnosis.op, "1B1");
  EXPECT_DOUBLE_EQ(diagnosis.ranks[1].seconds, 0.1);
  EXPECT_THAT(to_text(diagnosis, blamed, 0), HasSubstr("run/flight: rank 1 failed at 1B1: out of memory\n"));
  EXPECT_EQ(nlohmann::json::parse(to_json(diagnosis, blamed, 0)).at("reason"), "rank 1 failed at 1B1: out of memory");
}

TEST(DiagnosisTest, ReceivedMessagesAreNotWaitedFor) {
  const Instruction wait = transfer(InstructionKind::WaitReceive, kF1, 0);
  const Instruction send = transfer(InstructionKind::StartSend, kF1, 1);
  const auto waits_after = [&](const FlightEvent& of_sender) {
    return diagnose(flight({Events{of_sender}, {}, Events{at(3, 4, wait)}, {}})).ranks[2].waits_for;
  };
  EXPECT_THAT(waits_after(at(1, 4, send)), IsEmpty());
  EXPECT_THAT(waits_after(at(1, 3, send)), ElementsAre(0)) << "of the step before";
  EXPECT_THAT(waits_after(at(1, 5, compute(kF1))), IsEmpty()) << "it is in the next step";
  EXPECT_THAT(waits_after({0, {RankProgress::Phase::Ending}}), IsEmpty());
  EXPECT_THAT(waits_after(at(1, 4, transfer(InstructionKind::StartSend, op(OpKind::Forward, 0, 2), 1))), ElementsAre(0))
      << "another tensor";
}

TEST(DiagnosisTest, RanksThatJoinWaitForThoseThatStart) {
  const FlightEvent joining{kMillisecond, {RankProgress::Phase::Joining}};
  const FlightEvent starting{kMillisecond, {RankProgress::Phase::StartUp}};
  const Diagnosis diagnosis = diagnose(flight({Events{joining}, Events{starting}, Events{joining}, {}}));
  EXPECT_THAT(diagnosis.ranks[0].waits_for, ElementsAre(1, 3)) << "a rank without a record has not come either";
  EXPECT_EQ(diagnosis.culprit, 1);
}

TEST(DiagnosisTest, PrintsTextAndJson) {
  const Flight seen = hanging();
  const std::string text = to_text(diagnose(seen), seen, 1);
  EXPECT_THAT(
      text,
      HasSubstr("guilty: rank 3, at 0F1 in step 4 (inferred: it waits for no other rank, or has waited longest)\n"));
  EXPECT_THAT(text, HasSubstr("   0  wait for all-reduce of stage 0 in step 4        0.003 s  rank 1 (wait for 1B1 "
                              "from worker 1 in step 4)\n"));
  EXPECT_THAT(text, HasSubstr("last of rank 3, seconds before the end:\n  0.007000  0F1 in step 4\n"));
  const auto json = read_json(to_json(diagnose(seen), seen, 1));
  EXPECT_EQ(json.at("guilty"), 3);
  EXPECT_EQ(json.at("ranks")[2].at("waits_for"), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(json.at("ranks")[0].at("events").size(), 1U);
  EXPECT_EQ(json.at("ranks")[3].at("events")[0].at("seconds_before_end"), 0.007);
}

TEST(FlightRecordTest, KeepsTheLastEventsInOrder) {
  const Scratch scratch;
  FlightRecorder recorder(scratch.path("rank"));
  EXPECT_THAT(FlightRecorder::read(scratch.path("rank")), IsEmpty());
  const auto noted = static_cast<std::int64_t>(kFlightEvents) + 7;
  for (std::int64_t step = 1; step <= noted; ++step)
    recorder.note({RankProgress::Phase::Steps, step, transfer(InstructionKind::StartSend, kF1, 3)});
  const Events events = FlightRecorder::read(scratch.path("rank"));
  ASSERT_EQ(events.size(), kFlightEvents);
  EXPECT_EQ(events.front().progress.step, 8);
  EXPECT_EQ(events.back().progress.step, noted);
  EXPECT_EQ(events.back().progress.instruction, transfer(InstructionKind::StartSend, kF1, 3));
  EXPECT_TRUE(std::ranges::is_sorted(events, {}, &FlightEvent::nanoseconds));
}

TEST(FlightRecordTest, RejectsInvalidRecords) {
  const Scratch scratch;
  { const FlightRecorder recorder(scratch.path("rank")); }
  for (const std::uintmax_t bytes : {0U, 10U, 600'000U}) {
    std::filesystem::resize_file(scratch.path("rank"), bytes);
    EXPECT_THAT([&] { static_cast<void>(FlightRecorder::read(scratch.path("rank"))); },
                ThrowsMessage<ConfigError>(HasSubstr("is not a flight record")));
  }
  EXPECT_THAT([&] { static_cast<void>(FlightRecorder::read(scratch.path("none"))); },
              ThrowsMessage<ConfigError>(HasSubstr("cannot be read")));
}

TEST(FlightRecordTest, SkipsInvalidEvents) {
  const Scratch scratch;
  {
    FlightRecorder recorder(scratch.path("rank"));
    for (std::int64_t step = 1; step <= 3; ++step) recorder.note({RankProgress::Phase::Steps, step});
  }
  std::fstream file(scratch.path("rank"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(64 + sizeof(FlightEvent) + offsetof(FlightEvent, progress));  // the phase of the second event
  file.put('\x77');
  file.close();
  const Events events = FlightRecorder::read(scratch.path("rank"));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].progress.step, 3);
}

TEST(FlightFolderTest, OtherFilesAreNeitherMovedNorRemoved) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("docs"));
  const std::string file = scratch.write("docs/thesis.tex", "years of work");
  const auto is_refused = ThrowsMessage<ConfigError>(HasSubstr("docs: has thesis.tex, which is no flight record"));
  EXPECT_THAT([&] { require_flight_folder(scratch.path("docs")); }, is_refused);
  EXPECT_THAT([&] { begin_flight(scratch.path("docs"), flight({}).job); }, is_refused);
  remove_flight(scratch.path("docs"));
  EXPECT_TRUE(std::filesystem::exists(file));
  std::filesystem::rename(scratch.path("docs"), scratch.path("flight-previous"));
  EXPECT_THAT([&] { begin_flight(scratch.path("flight"), flight({}).job); },
              ThrowsMessage<ConfigError>(HasSubstr("flight-previous: has thesis.tex")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("flight-previous/thesis.tex")));
}

TEST(FlightFolderTest, RecordsOfARunningRankAreFound) {
  const Scratch scratch;
  const std::string folder = scratch.path("flight");
  begin_flight(folder, flight({}).job);
  {
    const FlightRecorder recorder(flight_path(folder, 0));
    EXPECT_THAT([&] { require_no_recording(folder); },
                ThrowsMessage<ConfigError>(HasSubstr("flight: another run records in this folder")));
  }
  EXPECT_NO_THROW(require_no_recording(folder));
  EXPECT_NO_THROW(require_no_recording(scratch.path("new")));
}

TEST(FlightFolderTest, ReadsBackAndKeepsThePreviousFlight) {
  const Scratch scratch;
  const std::string folder = scratch.path("run/flight");
  FlightJob job = flight({}).job;
  job.planned_by = "laptop";
  begin_flight(folder, job);
  { FlightRecorder(flight_path(folder, 1)).note({RankProgress::Phase::Joining}); }
  write_verdict(folder, {.reason = "rank 1 \xff", .culprit = 1, .op = "1B3", .nanoseconds = 5, .others_share = 0.25});
  const Flight first = read_flight_folder(scratch.path("run"));
  EXPECT_EQ(first.job.ranks, job.ranks);
  EXPECT_EQ(first.job.sums, job.sums);
  EXPECT_EQ(first.job.planned_by, "laptop");
  ASSERT_TRUE(first.verdict);
  EXPECT_EQ(first.verdict->culprit, 1);
  EXPECT_GT(first.verdict->unix_seconds, 1'700'000'000);
  EXPECT_NE(first.verdict->host, "");
  EXPECT_EQ(first.verdict->others_share, 0.25);
  Diagnosis found = diagnose(first);
  found.newest_checkpoint = "run/step-00000040";
  EXPECT_THAT(to_text(found, first, 0), ::testing::ContainsRegex("ended: 20[0-9-]+ [0-9:]+ on host "));
  EXPECT_THAT(to_text(found, first, 0), ::testing::HasSubstr("newest checkpoint: run/step-00000040\n"));
  EXPECT_FALSE(first.ranks[0]);
  ASSERT_TRUE(first.ranks[1]);
  EXPECT_EQ(first.ranks[1]->size(), 1U);
  begin_flight(folder, job);
  EXPECT_FALSE(read_flight_folder(folder).verdict);
  remove_flight(folder);
  EXPECT_EQ(read_flight_folder(scratch.path("run")).folder, scratch.path("run/flight-previous"));
  EXPECT_THAT([&] { static_cast<void>(read_flight_folder(scratch.path("other"))); },
              ThrowsMessage<ConfigError>(HasSubstr("has no flight records")));
  scratch.write("run/flight-previous/job.json", "{\"schedule\": 3}");
  EXPECT_THAT([&] { static_cast<void>(read_flight_folder(scratch.path("run"))); },
              ThrowsMessage<ConfigError>(HasSubstr("is damaged")));
}

}  // namespace
}  // namespace chimera
