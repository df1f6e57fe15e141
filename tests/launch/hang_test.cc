// Time is an argument: no test waits.

#include "launch/flight/hang.h"

#include <gtest/gtest.h>

#include "launch/local/rank.h"

namespace chimera {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A hang watch and its clock.
class Watched {
 public:
  explicit Watched(seconds beyond) : watch_(beyond) {}

  /// Polls regularly for `time`. Returns true if the job ever hung. `progress`: the rank makes progress meanwhile.
  bool pass(milliseconds time, bool progress, bool in_steps = true) {
    bool hung = false;
    for (const auto end = now_ + time; now_ < end; now_ += watch_.interval()) hung |= update(progress, in_steps);
    return hung;
  }
  /// Like pass() without progress, while rank 1 computes for `part` of the time.
  bool compute(milliseconds time, double part, bool in_steps = true) {
    bool hung = false;
    for (const auto end = now_ + time; now_ < end; now_ += watch_.interval()) {
      seen_.work[1] += std::chrono::duration_cast<HangWatch::Duration>(part * watch_.interval());
      hung |= update(false, in_steps);
    }
    return hung;
  }
  void stop_a_process() { seen_.is_stopped = true; }
  /// The watching process does not run.
  void stop_all(seconds time) { now_ += time; }
  bool update(bool progress, bool in_steps = true) {
    seen_.counts[0] += progress ? 1 : 0;
    seen_.in_steps = in_steps;
    return watch_.update(now_, seen_);
  }

 private:
  HangWatch watch_;
  HangWatch::Clock::time_point now_;
  HangWatch::Observation seen_{.counts = {1, 1}, .work = {HangWatch::Duration(0), HangWatch::Duration(0)}};
};

TEST(HangTest, IsAPauseOfAllRanks) {
  Watched job(seconds(8));
  EXPECT_FALSE(job.pass(seconds(100), true)) << "one rank makes progress, the other waits for it";
  EXPECT_FALSE(job.pass(seconds(7), false));
  EXPECT_TRUE(job.pass(seconds(4), false));
}

TEST(HangTest, AStoppedProcessIsNotSlowToStart) {
  Watched job(seconds(8));
  EXPECT_FALSE(job.pass(seconds(20), false, /*in_steps=*/false)) << "four times as long at the start";
  EXPECT_FALSE(job.update(true, /*in_steps=*/false));
  job.stop_a_process();
  EXPECT_FALSE(job.pass(seconds(7), false, /*in_steps=*/false));
  EXPECT_TRUE(job.pass(seconds(4), false, /*in_steps=*/false));
}

TEST(HangTest, IsLongerThanTheLongestPauseBefore) {
  Watched job(seconds(8));
  EXPECT_FALSE(job.pass(seconds(6), false));
  EXPECT_FALSE(job.update(true));
  EXPECT_FALSE(job.pass(seconds(13), false)) << "6 s more than 8 s";
  EXPECT_TRUE(job.pass(seconds(4), false));
}

TEST(HangTest, StartupMayTakeLongerWithoutExtendingLaterPauses) {
  Watched job(seconds(8));
  EXPECT_FALSE(job.pass(seconds(31), false, /*in_steps=*/false));
  EXPECT_FALSE(job.update(true));
  EXPECT_TRUE(job.pass(seconds(11), false));
  EXPECT_TRUE(Watched(seconds(8)).pass(seconds(34), false, /*in_steps=*/false));
}

TEST(HangTest, TheFirstStepMayTakeAsLongAsTheStart) {
  HangWatch watch(seconds(1), seconds(60));
  HangWatch::Clock::time_point now;
  HangWatch::Observation seen{.counts = {1}, .in_steps = true, .work = {}, .step = 7};
  const auto hangs_within = [&](seconds time) {
    bool hung = false;
    for (const auto end = now + time; now < end; now += watch.interval()) hung |= watch.update(now, seen);
    return hung;
  };
  EXPECT_FALSE(hangs_within(seconds(55))) << "not every kind of op has been seen";
  seen.counts[0] = 2;
  seen.step = 8;
  EXPECT_FALSE(watch.update(now, seen));
  EXPECT_FALSE(hangs_within(seconds(55))) << "the pause before was as long";
  EXPECT_TRUE(hangs_within(seconds(3)));
}

/// A job with --cuda-graphs: instructions of the first two steps are noted, later steps only at their ends.
class RecordingJob {
 public:
  explicit RecordingJob(bool records_steps) : watch_(milliseconds(2500), seconds(120), records_steps) {}

  /// Runs a step of `time`. Returns whether the job ever hung.
  bool step(seconds time, bool notes_instructions) {
    ++seen_.step;
    bool hung = update(true);
    for (const auto end = now_ + time; now_ < end; now_ += watch_.interval()) hung |= update(notes_instructions);
    return hung;
  }

 private:
  bool update(bool progress) {
    seen_.counts[0] += progress ? 1 : 0;
    return watch_.update(now_, seen_);
  }

  HangWatch watch_;
  HangWatch::Clock::time_point now_;
  HangWatch::Observation seen_{.counts = {1}, .in_steps = true, .work = {}};
};

TEST(HangTest, ARecordedStepMayTakeTwiceAsLongAsTheFirstTwo) {
  RecordingJob job(/*records_steps=*/true);
  EXPECT_FALSE(job.step(seconds(6), true));
  EXPECT_FALSE(job.step(seconds(5), true));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(job.step(seconds(23), false)) << "twice 11 s, and 2.5 s";
  EXPECT_TRUE(job.step(seconds(27), false)) << "the longest pause, and 2.5 s";

  RecordingJob unrecorded(/*records_steps=*/false);
  EXPECT_FALSE(unrecorded.step(seconds(6), true));
  EXPECT_FALSE(unrecorded.step(seconds(5), true));
  EXPECT_TRUE(unrecorded.step(seconds(4), false));
}

TEST(HangTest, HangsOfARecordingJobAreFound) {
  RecordingJob first(/*records_steps=*/true);
  EXPECT_TRUE(first.step(seconds(124), false));
  RecordingJob second(/*records_steps=*/true);
  EXPECT_FALSE(second.step(seconds(6), true));
  EXPECT_TRUE(second.step(seconds(16), false)) << "twice 6 s, and 2.5 s";
  RecordingJob fourth(/*records_steps=*/true);
  EXPECT_FALSE(fourth.step(seconds(2), true));
  EXPECT_FALSE(fourth.step(seconds(2), true));
  EXPECT_FALSE(fourth.step(seconds(2), false));
  EXPECT_TRUE(fourth.step(seconds(12), false));
}

TEST(HangTest, DiskIsGivenMoreTime) {
  HangWatch watch(seconds(2));
  HangWatch::Clock::time_point now;
  HangWatch::Observation seen{.counts = {1}, .in_steps = true, .work = {}, .is_waiting_for_disk = true};
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(watch.update(now += watch.interval(), seen)) << i;
  seen.is_waiting_for_disk = false;
  bool hung = false;
  for (const auto end = now + milliseconds(2500); now < end;) hung |= watch.update(now += watch.interval(), seen);
  EXPECT_TRUE(hung);
}

TEST(HangTest, FirstOpAndInitializationMayComputeForLong) {
  Watched job(seconds(30));
  EXPECT_FALSE(job.compute(seconds(1800), 1, /*in_steps=*/false)) << "an hour of initial values, half of it";
  EXPECT_FALSE(job.update(true));
  EXPECT_FALSE(job.compute(seconds(500), 0.1)) << "an op on a core that it shares with nine others";
  EXPECT_TRUE(job.pass(seconds(32), false)) << "then it waits, for nobody";
}

TEST(HangTest, ComputesForEver) {
  Watched job(seconds(30));
  EXPECT_TRUE(job.compute(seconds(700), 1));
}

TEST(HangTest, WaitingTakesAlmostNoTime) {
  Watched job(seconds(30));
  EXPECT_TRUE(job.compute(seconds(33), 0.01)) << "a rank that looks a hundred times a second whether others are there";
}

TEST(HangTest, TimeWithoutPollsDoesNotCount) {
  Watched job(seconds(8));
  EXPECT_FALSE(job.pass(seconds(5), true));
  job.stop_all(seconds(3600));
  EXPECT_FALSE(job.update(false)) << "Ctrl-Z, an hour, fg";
  EXPECT_FALSE(job.pass(seconds(4), false));
  EXPECT_TRUE(job.pass(seconds(8), false)) << "it hangs all the same";
}

StuckRank stuck(int rank, InstructionKind kind, bool stopped = false) {
  return {rank,
          stopped,
          {RankProgress::Phase::Steps,
           4,
           {kind, {OpKind::Forward, ReplicaId(0), StageId(0), MicroBatchId(rank)}, WorkerId(0)}}};
}

int named(const std::vector<StuckRank>& ranks) { return find_stuck(ranks).rank; }

TEST(HangTest, NamesTheStoppedRankBeforeTheBusyBeforeTheWaiting) {
  const StuckRank waiting = stuck(0, InstructionKind::WaitReceive);
  const StuckRank computing = stuck(1, InstructionKind::Compute);
  const StuckRank stopped = stuck(2, InstructionKind::WaitSend, true);
  EXPECT_EQ(named({waiting, computing, stopped}), 2);
  EXPECT_EQ(named({waiting, computing}), 1);
  EXPECT_EQ(named({waiting}), 0);
}

TEST(HangTest, NamesTheWaitingRankThatLagsBehind) {
  StuckRank ahead = stuck(0, InstructionKind::WaitReceive);
  ahead.progress.step = 5;
  const StuckRank joining{2, false, {RankProgress::Phase::Joining}};
  EXPECT_EQ(named({ahead, stuck(1, InstructionKind::ReduceScalars)}), 1);
  EXPECT_EQ(named({ahead, joining}), 2);
}

TEST(HangTest, IsDescribedInOneLine) {
  const auto pause = milliseconds(31'240);
  EXPECT_EQ(describe_hang(stuck(2, InstructionKind::Compute, true), pause),
            "rank 2 has made no progress for 31.2 s: stopped by a signal at 0F2 in step 4");
  EXPECT_EQ(describe_hang(stuck(2, InstructionKind::Compute), pause),
            "rank 2 has made no progress for 31.2 s: it hangs at 0F2 in step 4");
  EXPECT_EQ(
      describe_hang(stuck(2, InstructionKind::WaitReceive), pause),
      "rank 2 has made no progress for 31.2 s: like the others, it waits at wait for 0F2 from worker 0 in step 4");
  EXPECT_EQ(describe_hang({1, true, {}}, pause),
            "rank 1 has made no progress for 31.2 s: stopped by a signal at start-up");
  StuckRank full = stuck(2, InstructionKind::Compute);
  full.progress.allocation_retries = 3;
  EXPECT_EQ(describe_hang(full, pause),
            "rank 2 has made no progress for 31.2 s: it hangs at 0F2 in step 4; its GPU's memory was full 3 times "
            "before, and to free some can wait for messages: use less memory");
}

TEST(ProgressPageTest, MoreOfAnActivityIsProgressToo) {
  ProgressPage page(2);
  note_more_progress();  // Outside of a rank
  set_progress_page(&page, 1);
  note_progress({RankProgress::Phase::Steps, 7, {}});
  for (int tensor = 0; tensor < 3; ++tensor) note_more_progress();
  set_progress_page(nullptr, 0);
  EXPECT_EQ(page.count(1), 4U);
  EXPECT_EQ(page.last(1).phase, RankProgress::Phase::Steps);
  EXPECT_EQ(page.last(1).step, 7);
}

TEST(ProgressPageTest, ShowsTheLastProgressOfEachRank) {
  ProgressPage page(3);
  EXPECT_EQ(page.count(1), 0U);
  EXPECT_EQ(page.last(1).phase, RankProgress::Phase::StartUp);
  ProgressPage same(FileDescriptor(::dup(page.descriptor())));
  same.note(1, {RankProgress::Phase::Joining});
  same.note(1, {RankProgress::Phase::Steps,
                7,
                {InstructionKind::Compute, {OpKind::Forward, ReplicaId(0), StageId(2), MicroBatchId(5)}, WorkerId(0)}});
  EXPECT_EQ(page.count(1), 2U);
  EXPECT_EQ(to_text(page.last(1)), "2F5 in step 7");
  EXPECT_EQ(page.count(0) + page.count(2), 0U);
}

}  // namespace
}  // namespace chimera
