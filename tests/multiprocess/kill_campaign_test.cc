// A rank that is killed at any moment of a run of any schedule: it is named, the job ends at once, and nothing is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "core/random.h"
#include "training.h"

namespace chimera::testing {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;

constexpr std::chrono::seconds kEndsWithin{2};
constexpr std::size_t kSteps = 4;

/// The job of a schedule on D ranks: 2D micro-batches a step, a layer for each stage of those schedules that cut
/// finest.
Arguments job(const std::string& schedule, int ranks, const Scratch& scratch) {
  return small_training(scratch) + Arguments{"--model",         "gpt2-tiny",
                                             "--layers",        std::to_string(2 * ranks),
                                             "--schedule",      schedule,
                                             "--stages",        std::to_string(ranks),
                                             "--micro-batches", std::to_string(2 * ranks),
                                             "--steps",         std::to_string(kSteps)};
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& entry : nlohmann::json::parse(run_program({"schedules", "--format", "json"}).output)) {
    names.push_back(entry.at("name").get<std::string>());
  }
  return names;
}

/// How long the job takes where nobody is killed.
microseconds time_of(const std::string& schedule, int ranks) {
  const Scratch scratch;
  const auto start = std::chrono::steady_clock::now();
  const ProgramResult result = run_program(job(schedule, ranks, scratch));
  EXPECT_EQ(result.exit_code, 0) << result.messages;
  return std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - start);
}

struct Kill {
  int rank = 0;
  microseconds moment{};  // since all ranks were there
};

/// Runs the job and kills a rank; false where the job had ended well before.
bool ends_the_job(const std::string& schedule, int ranks, const Kill& kill) {
  const Scratch scratch;
  ProgramRun run(job(schedule, ranks, scratch), {.ranks = ranks, .is_copy = true});
  run.await_ranks();
  run.watch_for(kill.moment);
  run.send(run.rank(kill.rank), SIGKILL);
  const ProgramResult result = run.wait();
  const auto steps = read_metrics(scratch.path("metrics.jsonl"));
  EXPECT_FALSE(result.left_files);
  EXPECT_EQ(result.orphans, 0);
  if (result.exit_code == 0) {  // the rank had done its part
    EXPECT_THAT(complaints(result), ElementsAre());
    EXPECT_EQ(steps.size(), kSteps);
    return false;
  }
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_LT(result.ending_time, kEndsWithin);
  EXPECT_THAT(complaints(result),
              ElementsAre("chimera: rank " + std::to_string(kill.rank) + " was killed by signal 9 (Killed)"));
  EXPECT_LE(steps.size(), kSteps);
  return true;
}

/// Kills until so many have ended a job, at moments spread evenly over `duration`, about the time that the job takes.
/// A job that ends before its kill shows that it takes less: where other programs come and go, the first one's time is
/// no measure.
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

/// One kill of each schedule, on two ranks and four in turn; CHIMERA_FAULT_CAMPAIGN=n: n kills of each schedule on
/// both.
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
