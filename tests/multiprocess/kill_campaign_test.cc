// A rank killed at any moment of any schedule is reported, and the job ends at once and leaves nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "core/json.h"
#include "core/random.h"
#include "training.h"

namespace chimera::testing {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;

constexpr std::size_t kSteps = 4;

/// A job of the schedule on D ranks: 2D micro-batches per step, and enough layers for the schedules with the most
/// stages.
Words job(const std::string& schedule, int ranks, const Scratch& scratch) {
  return small_training(scratch) +
         split("--model gpt2-tiny --layers {} --schedule {} --stages {} --micro-batches {} --steps {}", 2 * ranks,
               schedule, ranks, 2 * ranks, kSteps);
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& entry : read_json(run_program("schedules --format json").output))
    names.push_back(entry.at("name").get<std::string>());
  return names;
}

/// Time of the job without a kill.
microseconds time_of(const std::string& schedule, int ranks) {
  const Scratch scratch;
  const auto start = std::chrono::steady_clock::now();
  succeeded(run_program(job(schedule, ranks, scratch)));
  return std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - start);
}

struct Kill {
  int rank = 0;
  microseconds moment{};  // since all ranks had started
};

/// Runs the job and kills a rank. Returns false if the job had already ended.
bool ends_the_job(const std::string& schedule, int ranks, const Kill& kill) {
  const Scratch scratch;
  ProgramRun run(job(schedule, ranks, scratch), {.ranks = ranks, .is_copy = true});
  run.await_ranks();
  run.watch_for(kill.moment);
  run.send(run.rank(kill.rank), SIGKILL);
  const ProgramResult result = run.wait();
  const auto steps = read_metrics(scratch.path("metrics.jsonl"));
  expect_clean(result);
  if (result.exit_code == 0) {  // the rank had finished its work
    EXPECT_THAT(complaints(result), ElementsAre());
    EXPECT_EQ(steps.size(), kSteps);
    return false;
  }
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(complaints(result),
              ElementsAre("chimera: rank " + std::to_string(kill.rank) + " was killed by signal 9 (Killed)"));
  EXPECT_LE(steps.size(), kSteps);
  return true;
}

/// Repeats until `kills` kills have ended a job, at moments spread evenly over `duration`, the estimated time of the
/// job. A job that ends before its kill shortens the estimate: on a busy machine the first measurement is unreliable.
void campaign(const std::string& schedule, int ranks, int kills, microseconds duration) {
  const CounterRandom random(static_cast<std::uint64_t>(ranks), schedule + " kills");
  std::uint64_t draw = 0;
  for (int done = 0; done < kills;) {
    const Kill kill{static_cast<int>(random.below(draw, static_cast<std::uint64_t>(ranks))),
                    microseconds(random.below(draw + 1, static_cast<std::uint64_t>(duration.count())))};
    draw += 2;
    SCOPED_TRACE(schedule + " on " + std::to_string(ranks) + " ranks, rank " + std::to_string(kill.rank) + " after " +
                 std::to_string(kill.moment.count()) + " us");
    if (ends_the_job(schedule, ranks, kill)) {
      ++done;
    } else {
      duration = kill.moment;
      ASSERT_GT(duration, microseconds::zero()) << "a job that had only begun cannot have ended";
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

/// One kill of each schedule, alternately on two and four ranks; with CHIMERA_FAULT_CAMPAIGN=n, n kills of each
/// schedule on both.
TEST(TrainingKillCampaignTest, AKilledRankEndsTheJobOfAnySchedule) {
  const char* length = std::getenv("CHIMERA_FAULT_CAMPAIGN");
  const microseconds about = time_of("chimera", 4);
  bool on_two = false;
  for (const std::string& schedule : schedule_names()) {
    on_two = !on_two;
    if (length == nullptr) {
      campaign(schedule, on_two ? 2 : 4, 1, about);
      if (HasFatalFailure()) return;
      continue;
    }
    for (const int ranks : {2, 4}) {
      campaign(schedule, ranks, std::stoi(length), time_of(schedule, ranks));
      if (HasFatalFailure()) return;
      std::printf("%s on %d ranks: %s kills\n", schedule.c_str(), ranks, length);
    }
  }
}

}  // namespace
}  // namespace chimera::testing
