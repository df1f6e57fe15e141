#include "measuring/step_contest.h"
#include "core/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/contest.h"
#include "bench/random_letters.h"
#include "core/error.h"
#include "transport/threads/thread_transport.h"

namespace chimera {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(SpeedGaugeTest, TimesAreScaledToTheMedianSpeed) {
  // The second time was measured at half speed, the last at double speed.
  const std::vector<std::vector<GaugedTime>> times = {{{10, 1}, {20, 2}}, {{7, 1}, {8, 0.5}}};
  const auto scaled = at_median_speed(times);
  EXPECT_THAT(scaled[0], ElementsAre(DoubleEq(10), DoubleEq(10)));
  EXPECT_THAT(scaled[1], ElementsAre(DoubleEq(7), DoubleEq(16)));
}

TEST(SpeedGaugeTest, AllWorkOfTheProcessorSlowsDownAlike) {
  MachineProfile machine;
  machine.layers.push_back({LayerKind::Block, find_model("gpt2-tiny"), 128, DataType::Float32, {{1, 2, 3, 4, 5, 0.1}}});
  machine.all_reduce = {{1, 2}, {3, 4}};
  machine.message_copy = {5, 6};
  machine.node_message_copy = {7, 8};
  machine.optimizer_seconds = 7;
  machine.contention.ops_by_sums = 0.5;
  const MachineProfile slower = on_slower_processor(machine, 2);
  EXPECT_EQ(slower.all_reduce, (LinkProfile{{2, 4}, {6, 8}}));
  EXPECT_EQ(slower.message_copy, (LinkTimes{10, 12}));
  EXPECT_EQ(slower.node_message_copy, (LinkTimes{14, 16}));
  EXPECT_EQ(slower.optimizer_seconds, 14);
  EXPECT_EQ(slower.contention, machine.contention) << "shares stay";
  EXPECT_EQ(slower.layers[0].times[0], (LayerTime{1, 4, 6, 8, 10, 0.1}));
}

/// A contest of one process.
struct OneRank {
  ThreadHub hub{1, {}};
  std::unique_ptr<Transport> transport = hub.transport(RankId(0));
  Lockstep ranks{*transport, 0, 1};
  SpeedGauge gauge{ranks, {{"gpt2-tiny", 1}}};
  TemporaryFolder folder;
  std::string data = folder.file("text.txt");

  OneRank() { write_random_letters(data); }
  TrainOptions run(const std::string& schedule, std::int64_t stages, TransportKind kind) const {
    TrainOptions options;
    options.model.name = "gpt2-tiny";
    options.data.training = data;
    options.schedule.name = schedule;
    options.schedule.shape = {stages, 2, 2};
    options.data.micro_batch_size = 1;
    options.data.sequence = 16;
    options.device.transport = kind;
    options.device.threads = 1;
    return options;
  }
};

TEST(StepContestTest, EveryRunHasATimePerRound) {
  OneRank here;
  StepContest contest(here.ranks, 1, here.gauge,
                      {here.run("1f1b", 2, TransportKind::Threads), here.run("1f1b", 1, TransportKind::Processes),
                       here.run("chimera", 2, TransportKind::Threads)},
                      here.folder.file("contest"));
  contest.round();
  contest.forget();
  for (int round = 0; round < 3; ++round) contest.round();
  ASSERT_EQ(contest.times().size(), 3U);
  for (const auto& run : contest.times()) {
    ASSERT_EQ(run.size(), 3U) << "without the round before";
    for (const GaugedTime& time : run) {
      EXPECT_GT(time.seconds, 0);
      EXPECT_GT(time.gauge, 0);
    }
  }
}

TEST(StepContestTest, RefusesARunWithTooManyProcesses) {
  OneRank here;
  EXPECT_THROW(StepContest(here.ranks, 1, here.gauge, {here.run("1f1b", 2, TransportKind::Processes)},
                           here.folder.file("contest")),
               ConfigError);
}

}  // namespace
}  // namespace chimera
