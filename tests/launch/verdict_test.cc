#include "launch/local/failure_report.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

RankOutcome running() { return {}; }
RankOutcome exited(int code) { return {.report = {}, .ending = Ending{Ending::Kind::Exited, code}}; }
RankOutcome killed(int signal_number) { return {.report = {}, .ending = Ending{Ending::Kind::Killed, signal_number}}; }
RankOutcome reported(bool own_cause) { return {.report = FailureReport{0, "1B3", "reason", own_cause}, .ending = {}}; }

TEST(VerdictTest, TellsVictimsFromCulprits) {
  EXPECT_EQ(failure_role(running()), FailureRole::None);
  EXPECT_EQ(failure_role(exited(0)), FailureRole::None);
  EXPECT_EQ(failure_role(exited(1)), FailureRole::Culprit);
  EXPECT_EQ(failure_role(exited(static_cast<int>(ExitCode::PeerLost))), FailureRole::Victim);
  EXPECT_EQ(failure_role(killed(SIGSEGV)), FailureRole::Culprit);
  EXPECT_EQ(failure_role(reported(true)), FailureRole::Culprit);
  EXPECT_EQ(failure_role(reported(false)), FailureRole::Victim);
}

TEST(VerdictTest, AVictimThatAbortsStaysAVictim) {
  RankOutcome record = reported(false);
  record.ending = Ending{Ending::Kind::Killed, SIGABRT};
  EXPECT_EQ(failure_role(record), FailureRole::Victim);
}

TEST(VerdictTest, TheFirstCulpritIsNamed) {
  EXPECT_EQ(find_culprit(std::vector{exited(1), reported(false), exited(1)}, std::vector{1, 2, 0}), 2);
  EXPECT_EQ(find_culprit(std::vector{running(), reported(false)}, std::vector{1}), std::nullopt) << "victims alone";
  EXPECT_EQ(find_culprit(std::vector{reported(true), killed(SIGKILL)}, std::vector{0, 1}), 1) << "before its victims";
}

TEST(VerdictTest, DescribesTheFailure) {
  EXPECT_EQ(describe_failure(2, reported(true)), "rank 2 failed at 1B3: reason");
  EXPECT_EQ(describe_failure(2, killed(SIGKILL)), "rank 2 was killed by signal 9 (Killed)");
  EXPECT_EQ(describe_failure(2, exited(7)), "rank 2 exited with code 7");
}

TEST(VerdictTest, OnlyAWrongConfigurationKeepsItsExitCode) {
  EXPECT_EQ(job_exit_code(exited(2)), 2);
  EXPECT_EQ(job_exit_code(exited(3)), 1);
  EXPECT_EQ(job_exit_code(exited(7)), 1);
  EXPECT_EQ(job_exit_code(killed(SIGKILL)), 1);
  RankOutcome quick = killed(SIGKILL);
  quick.report = FailureReport{0, "start-up", "unknown flag", true, true};
  EXPECT_EQ(job_exit_code(quick), 2) << "ended by the launcher before it could";
}

TEST(VerdictTest, ARankExitsAsItsReportSays) {
  EXPECT_EQ(exit_code_of(FailureReport{.message = "4 stages of 3 layers", .usage = true}), ExitCode::Usage);
  EXPECT_EQ(exit_code_of(FailureReport{.message = "out of memory", .is_final = true}), ExitCode::No);
  EXPECT_EQ(exit_code_of(FailureReport{.message = "connection closed", .own_cause = false}), ExitCode::PeerLost);
}

TEST(VerdictTest, ConfigurationErrorsAndFinalReportsAreFinal) {
  EXPECT_FALSE(is_final(killed(SIGKILL)));
  EXPECT_FALSE(is_final(reported(true)));
  EXPECT_TRUE(is_final(exited(2)));
  RankOutcome final_one = reported(true);
  final_one.report->is_final = true;
  EXPECT_TRUE(is_final(final_one));
}

}  // namespace
}  // namespace chimera
