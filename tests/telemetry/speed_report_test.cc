#include "telemetry/speed_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Scratch;
using ::testing::ThrowsMessage;

using Events = std::vector<FlightEvent>;

/// Appends a step of a rank whose forward of `stage` takes `forward` ms. A backward takes 2 ms, a wait for a message 3,
/// the sum 4, the wait for the slowest rank 5, the update 1.
void add_step(Events& events, std::int64_t step, std::int64_t stage, std::int64_t forward) {
  std::int64_t now = events.empty() ? 0 : events.back().nanoseconds + 1'000'000;
  const auto add = [&](Instruction instruction, std::int64_t milliseconds) {
    events.push_back({now, {RankProgress::Phase::Steps, step, instruction}});
    now += milliseconds * 1'000'000;
  };
  const auto compute = [&](OpKind kind) {
    Op op{.kind = kind};
    op.stage = StageId(stage);
    return Instruction{.kind = InstructionKind::Compute, .op = op};
  };
  add(compute(OpKind::Forward), forward);
  add({.kind = InstructionKind::WaitReceive}, 3);
  add(compute(OpKind::Backward), 2);
  add({.kind = InstructionKind::WaitAllReduce}, 4);
  add({.kind = InstructionKind::ReduceScalars}, 5);
  add({.kind = InstructionKind::OptimizerStep}, 1);
}

/// Records of two data-parallel ranks with one stage each, from step `first` on, with `steps` complete steps.
Flight recorded(std::int64_t forward_of_second, std::int64_t first, std::int64_t steps) {
  Flight flight{.folder = "run/flight"};
  for (const std::int64_t forward : {std::int64_t{10}, forward_of_second}) {
    Events events;
    for (std::int64_t step = first; step <= first + steps; ++step) add_step(events, step, 0, forward);
    flight.ranks.emplace_back(std::move(events));
    flight.job.ranks.push_back({GroupId(std::ssize(flight.job.ranks)), WorkerId(0)});
  }
  return flight;
}

TEST(SpeedReportTest, SumsUpTheCompleteSteps) {
  const auto report = speed_of(recorded(10, 7, 4));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->steps, 3) << "the oldest step may lack its first events, and the last is not over";
  EXPECT_NEAR(report->step_seconds, 0.025, 1e-12);
  EXPECT_NEAR(report->parts.ops, 0.012, 1e-12);
  EXPECT_NEAR(report->parts.messages, 0.003, 1e-12);
  EXPECT_NEAR(report->parts.sums, 0.004, 1e-12);
  EXPECT_NEAR(report->parts.ranks, 0.005, 1e-12);
  EXPECT_NEAR(report->parts.updates, 0.001, 1e-12);
  ASSERT_EQ(report->ops.size(), 2U);
  EXPECT_EQ(report->ops[0].kind, OpKind::Forward);
  EXPECT_NEAR(report->ops[0].seconds, 0.010, 1e-12);
  EXPECT_NEAR(report->ops[1].seconds, 0.002, 1e-12);
}

TEST(SpeedReportTest, TheFirstStepOfARunDoesNotCount) {
  Flight flight = recorded(10, 1, 3);
  for (auto& events : flight.ranks) events->insert(events->begin(), {-1, {RankProgress::Phase::Joining}});
  EXPECT_EQ(speed_of(flight)->steps, 2);
}

TEST(SpeedReportTest, SlowRanksAreStragglers) {
  EXPECT_THAT(stragglers_of(recorded(20, 7, 4)), ElementsAre(1));
  EXPECT_THAT(stragglers_of(recorded(11, 7, 4)), IsEmpty()) << "ops take 13 ms, not 12";
  EXPECT_THAT(stragglers_of(recorded(20, 7, 0)), IsEmpty()) << "no step is complete";
}

TEST(SpeedReportTest, NamesTheSlowRank) {
  const auto report = speed_of(recorded(20, 7, 4));
  EXPECT_NEAR(report->ranks[1].slowdown(), 22.0 / 12, 1e-9);
  EXPECT_THAT(to_text(*report), HasSubstr("rank 1 is slow: the same ops take 1.83 times as long as on other ranks, up "
                                          "to 0.0100 s a step"));
  EXPECT_THAT(to_text(*report), Not(HasSubstr("rank 0 is slow")));
}

/// Forwards of some stages, each with the given duration.
OpTotals forwards(const std::vector<std::pair<std::int64_t, double>>& ops) {
  OpTotals totals;
  for (const auto& [stage, seconds] : ops) {
    totals[{stage, OpKind::Forward}].seconds += seconds;
    ++totals[{stage, OpKind::Forward}].count;
  }
  return totals;
}

TEST(SpeedReportTest, ARankIsComparedWithOthersThatRunTheSameOps) {
  const std::vector ranks = {forwards({{0, 1}, {1, 2}}), forwards({{0, 3}}), forwards({{1, 2}, {1, 6}})};
  EXPECT_DOUBLE_EQ(seconds_elsewhere(ranks, 0), 3 + 4);
  EXPECT_DOUBLE_EQ(seconds_elsewhere(ranks, 1), 1);
  EXPECT_DOUBLE_EQ(seconds_elsewhere(ranks, 2), 4);
}

TEST(SpeedReportTest, ForwardsAndBackwardsAreSeparate) {
  const OpTotals backwards = {{{0, OpKind::Backward}, {.seconds = 2, .count = 1}}};
  EXPECT_EQ(seconds_elsewhere({forwards({{0, 1}}), backwards}, 0), 0) << "nobody else runs its op";
  EXPECT_EQ(RankSpeed({.parts = {.ops = 1}}).slowdown(), 1);
}

TEST(SpeedReportTest, SmallDifferencesAreIgnored) {
  SpeedAnalysis report{.steps = 1, .step_seconds = 0.5};
  report.ranks = {{.rank = 0, .parts = {.ops = 0.1}, .elsewhere = 0.105},
                  {.rank = 1, .parts = {.ops = 0.105}, .elsewhere = 0.1},
                  {.rank = 2, .parts = {.ops = 9}}};
  EXPECT_THAT(to_text(report), Not(HasSubstr("is slow")));
}

TEST(SpeedReportTest, ARankFarSlowerThanOtherStagesIsNamed) {
  SpeedAnalysis report{.steps = 1, .step_seconds = 0.5, .others_share = 0.3};
  report.ranks = {{.rank = 0, .parts = {.ops = 0.01}}, {.rank = 1, .parts = {.ops = 0.32}}};
  EXPECT_THAT(to_text(report), HasSubstr("rank 1 is slow: its ops take 32.0 times as long as those of the other "));
  report.ranks[1].parts.ops = 0.03;
  EXPECT_THAT(to_text(report), Not(HasSubstr("is slow"))) << "the last stage has the head";
}

TEST(SpeedReportTest, ComparesOpsWithTheProfile) {
  Flight flight = recorded(10, 7, 4);
  EXPECT_THAT(to_text(*speed_of(flight)), HasSubstr("beside ops, most time goes to slowest rank (20 % of a step)"));
  flight.job.planned_step_seconds = 0.02;
  flight.job.planned_ops = {{0.004, 0.002, 0.001, 0.001}};
  EXPECT_THAT(
      to_text(*speed_of(flight)),
      ::testing::AllOf(HasSubstr("0.0250 s a step (median); planned 0.0200 s (-20.0 %)"),
                       HasSubstr("stage   0  F 0.0100 s (profile 0.0040 s, 2.50 times)"),
                       HasSubstr("\n  ops take longer than in the profile, F of stage 0 2.50 times as long: the "
                                 "profile is of another machine or state, or ops waited for a core\n")));
}

/// Ops take 10 times as long as in the profile. Other processes explain a factor of 4, and the profile is wrong by 2.5.
TEST(SpeedReportTest, SplitsSlowOpsBetweenOtherProcessesAndTheProfile) {
  Flight flight = recorded(10, 7, 4);
  flight.verdict = {.reason = "stopped", .others_share = 0.75};
  flight.job.planned_ops = {{0.001, 0.0002, 0, 0}};
  flight.job.planned_by = "laptop (laptop.json of 2026-11-27)";
  EXPECT_THAT(
      to_text(*speed_of(flight)),
      HasSubstr("  stage   0  F 0.0100 s (profile 0.0010 s, 10.00 times)  B 0.0020 s (profile 0.0002 s, 10.00 "
                "times)\n"
                "  other processes used 75 % of the cores meanwhile: ops took up to 4.00 times as long, because "
                "they waited for a core\n"
                "  apart from that, ops take longer than in the profile laptop (laptop.json of 2026-11-27), F of "
                "stage 0 2.50 times as long: the profile is of another machine or state\n"));
  flight.job.planned_ops = {{0.0025, 0.0005, 0, 0}};
  EXPECT_THAT(to_text(*speed_of(flight)), Not(HasSubstr("apart from that")));
}

/// With CPU times of ops, waits for a core are measured. They also come from ranks that take turns.
TEST(SpeedReportTest, MeasuresWaitsForACoreByCpuTimes) {
  SpeedAnalysis report{.steps = 3, .step_seconds = 0.05, .others_share = 0.5};
  report.ops = {{.seconds = 0.03, .planned = 0.01, .cpu_seconds = 0.01}};
  EXPECT_THAT(to_text(report), HasSubstr("meanwhile: ops took 3.00 times as long, because they waited for a core\n"));
  EXPECT_THAT(to_text(report), Not(HasSubstr("than in the profile")));
  report.ops[0].planned = 0.004;
  EXPECT_THAT(to_text(report), HasSubstr("F of stage 0 2.50 times as long"));
}

/// The launcher measures it until it writes the verdict of a run that failed.
TEST(SpeedReportTest, AFailedRunReportsOtherProcesses) {
  Flight flight = recorded(10, 7, 4);
  EXPECT_THAT(to_text(*speed_of(flight)), HasSubstr("(20 % of a step)\n  it is unknown how much other processes used"));
  flight.verdict = {.reason = "rank 1 was killed by signal 9", .others_share = 0.1};
  EXPECT_THAT(to_text(*speed_of(flight)),
              HasSubstr("(20 % of a step)\n  other processes used 10 % of the cores meanwhile\n"));
}

TEST(SpeedReportTest, WithoutACompleteStepThereIsNoReport) {
  EXPECT_FALSE(speed_of(recorded(10, 7, 1)).has_value());
  EXPECT_FALSE(speed_of({.folder = "run/flight", .ranks = {std::nullopt, Events{}}}).has_value());
}

TEST(SpeedReportTest, IsReadBackFromTheFileOfARun) {
  const Scratch scratch;
  EXPECT_FALSE(read_speed(scratch.path("")).has_value());
  SpeedAnalysis report = *speed_of(recorded(20, 7, 4));
  report.simulated = 0.02;
  report.others_share = 0.4;
  report.busiest_other = "python3 (process 71), 98 % of a core";
  report.ops[0].planned = 0.004;
  scratch.write(kSpeedName, json_text(to_json(report), 2));
  const auto read = read_speed(scratch.path(""));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, to_json(report));
  EXPECT_EQ(read->at("text"), to_text(report));
  EXPECT_EQ(read->at("others_share"), 0.4);
  EXPECT_EQ(read->at("busiest_other"), report.busiest_other);
  EXPECT_TRUE(read->at("seconds").contains("slowest_rank"));
  EXPECT_THAT(to_text(report),
              HasSubstr("used 40 % of the cores meanwhile, most of all python3 (process 71), 98 % of "));
  report.busiest_other = "";
  report.ranks.clear();
  EXPECT_THAT(to_text(report), HasSubstr("\n  other processes used 40 % of the cores meanwhile: ops took up to 1.67 "));
  scratch.write(kSpeedName, "{\"steps\": 3}");
  EXPECT_THAT([&] { static_cast<void>(read_speed(scratch.path(""))); },
              ThrowsMessage<ConfigError>(HasSubstr("is damaged")));
}

}  // namespace
}  // namespace chimera
