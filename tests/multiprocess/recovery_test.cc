// Runs that are asked to end, or fail, and resume: their numbers equal those of an undisturbed run.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/file_descriptor.h"
#include "core/json.h"
#include "multiprocess/training.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr int kSaved = 75;  // EX_TEMPFAIL

const Words kRecoveryChimera = "--schedule chimera --stages 4 --micro-batches 8";
const Words kRecoveryThreads = "--schedule 1f1b --stages 2 --micro-batches 4 --data-parallel 2 --transport threads";
const Words kUnpipelined = "--schedule none --micro-batches 8";

/// 8 micro-batches per step over all groups, in canonical order.
Words canonical_training(const Scratch& scratch, const Words& flags) {
  return small_training(scratch) + flags + "--model gpt2-tiny --steps 8 --reduction canonical --dropout 0.1";
}

/// Hashes of the undisturbed run, on one worker.
const Hashes& without_faults() {
  static const Hashes hashes = [] {
    const Scratch scratch;
    EXPECT_EQ(run_program(canonical_training(scratch, kUnpipelined)).exit_code, 0);
    return hashes_in(scratch);
  }();
  return hashes;
}

ProgramResult run_with(const Words& arguments, const std::string& fault, int ranks) {
  return ProgramRun(arguments, {.environment = {"CHIMERA_FAULT=" + fault}, .ranks = ranks}).wait();
}

struct Request {
  std::string fault;
  Words flags;
  int ranks;  // processes besides the launcher
};

/// Returns true if the process handles the signal or is gone.
bool catches(pid_t process, int signal_number) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  if (!status) return true;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (signal_number - 1) & 1U) != 0;
  }
  return false;
}

// The run waits for a schedule on standard input, from an idle pipe.
TEST(TrainingRequestTest, RunBeforeItsStartAsksForARetry) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor read_end(ends[0]);
  const FileDescriptor write_end(ends[1]);
  for (const int signal_number : {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    const Scratch scratch;
    ProgramRun run(small_training(scratch) + split("--schedule - --checkpoint {}", scratch.path("run")),
                   {.in_process = [&] { ::dup2(read_end.get(), STDIN_FILENO); }});
    while (!catches(run.process(), signal_number)) run.watch_for(std::chrono::milliseconds(1));
    run.send(run.process(), signal_number);
    EXPECT_EQ(run.wait().exit_code, kSaved) << signal_number;
  }
}

/// Signals one rank, or the launcher, in step 5.
TEST(TrainingRequestTest, SignaledRunSavesAndResumesOnAnotherLayout) {
  for (const auto& [fault, flags, ranks] :
       {Request{"terminate@backward:2:17", kRecoveryChimera, 4},
        Request{"terminate-launcher@backward:1:17", kRecoveryChimera, 4},
        Request{"terminate@backward:1:17", kRecoveryThreads, 0}, Request{"terminate@step:0:5", kUnpipelined, 0}}) {
    SCOPED_TRACE(fault);
    const Scratch scratch;
    const Words saves = split("--checkpoint {} --resume auto", scratch.path("run"));
    const ProgramResult asked = run_with(canonical_training(scratch, flags + saves), fault, ranks);
    EXPECT_EQ(asked.exit_code, kSaved) << asked.messages;
    EXPECT_THAT(asked.messages, HasSubstr("chimera: ended by a signal; step "));
    const auto done = hashes_in(scratch).size();
    EXPECT_GE(done, 2U);
    EXPECT_LT(done, 8U);
    EXPECT_THAT(output_of(canonical_training(scratch, kRecoveryThreads + saves)),
                HasSubstr("continues from " + scratch.path("run") + "/step-0000000" + std::to_string(done)));
    EXPECT_EQ(hashes_in(scratch), without_faults());
  }
}

struct Failure {
  std::string fault;
  std::string line;  // a regular expression, after "chimera: "
};

TEST(TrainingRestartTest, FailedRunRestartsWithTheSameNumbers) {
  for (const auto& [fault, line] :
       {Failure{"kill@step:3:7", "rank 3 was killed by signal 9 .Killed."},
        Failure{"throw@backward:1:18", "rank 1 failed at [^:]+: fault injected at backward"},
        Failure{"kill@before-rename:0:2", "rank 0 was killed by signal 9 .Killed."},
        Failure{"kill@start:2", "rank 2 was killed by signal 9 .Killed."}}) {
    SCOPED_TRACE(fault);
    const Scratch scratch;
    const ProgramResult result = succeeded(run_with(
        canonical_training(
            scratch, kRecoveryChimera + split("--checkpoint {} --save-every 2 --max-restarts 1", scratch.path("run"))),
        fault, 4));
    EXPECT_EQ(result.orphans, 0);
    EXPECT_THAT(complaints(result),
                ElementsAre(MatchesRegex("chimera: " + line), StartsWith("chimera: restart 1 of 1: ")));
    EXPECT_EQ(hashes_in(scratch), without_faults());
  }
}

TEST(TrainingRestartTest, RecoverRestartMeansThreeRestarts) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_with(
      canonical_training(
          scratch, kRecoveryChimera + split("--checkpoint {} --save-every 2 --recover restart", scratch.path("run"))),
      "kill@step:3:7", 4));
  EXPECT_THAT(complaints(result), ElementsAre(::testing::_, StartsWith("chimera: restart 1 of 3: ")));
  EXPECT_THAT(result.output, HasSubstr("\nsaved " + scratch.path("run/step-")));
}

TEST(TrainingRestartTest, AFailedRunWithoutACheckpointStartsAgain) {
  const Scratch scratch;
  const std::string folder = scratch.path("my run");
  const Words training = canonical_training(scratch, kRecoveryChimera + Words{"--checkpoint", folder});
  const ProgramResult result = run_with(training, "kill@step:3:7", 4);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("\n  newest checkpoint: none\n  start again: chimera train --data "));
  EXPECT_THAT(result.messages, ::testing::Not(HasSubstr("--resume")));
  EXPECT_THAT(result.messages, HasSubstr("\n  why: chimera diagnose '" + folder + "'\n"));
  const ProgramResult whole = run_program(training + "--overwrite");
  EXPECT_THAT(whole.output, HasSubstr("chimera generate --from '" + folder + "' --prompt TEXT"));
}

TEST(TrainingRestartTest, AFailedRunSaysHowToContinue) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  const Words training =
      canonical_training(scratch, kRecoveryChimera + split("--checkpoint {} --save-every 2", folder));
  const ProgramResult result = run_with(training, "kill@step:3:7", 4);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("\n  last: "));
  EXPECT_THAT(result.messages, HasSubstr("\n  newest checkpoint: " + folder + "/step-0000000"));
  EXPECT_THAT(result.messages, HasSubstr("\n  continue: chimera train --data "));
  EXPECT_THAT(result.messages, HasSubstr(" --resume auto\n  why: chimera diagnose " + folder + "\n"));
  EXPECT_EQ(run_program({"diagnose", folder}).exit_code, 0);
  EXPECT_THAT(run_program({"diagnose", folder}).output, HasSubstr("\nnewest checkpoint: " + folder + "/step-"));
  const auto of_failed = read_json(run_program(split("diagnose {} --format json", folder)).output).at("speed");
  EXPECT_GE(of_failed.at("steps"), 3);
  EXPECT_GT(of_failed.at("seconds").at("ops"), 0);
  succeeded(run_program(training + "--resume auto"));
  const std::string ended = run_program({"diagnose", folder}).output;
  EXPECT_THAT(ended, HasSubstr(folder + ": the last run has ended well\n"));
  EXPECT_THAT(ended, HasSubstr("simulated with these ops "));
  EXPECT_THAT(ended, HasSubstr("\n    stage   3  F "));
  EXPECT_EQ(hashes_in(scratch), without_faults());
}

TEST(TrainingRestartTest, ARankThatStopsIsReplacedLikeOneThatDies) {
  const Scratch scratch;
  const ProgramResult result = succeeded(run_with(
      canonical_training(scratch,
                         kRecoveryChimera + split("--checkpoint {} --save-every 2 --max-restarts 1 --hang-seconds 0.5",
                                                  scratch.path("run"))),
      "stop@backward:2:14", 4));
  EXPECT_THAT(complaints(result),
              ElementsAre(MatchesRegex("chimera: rank 2 has made no progress for .*: stopped by a signal at .*"),
                          StartsWith("chimera: restart 1 of 1: ")));
  EXPECT_EQ(hashes_in(scratch), without_faults());
}

TEST(TrainingRestartTest, StepThatAlwaysFailsEndsTheRun) {
  const Scratch scratch;
  const ProgramResult result = run_with(
      canonical_training(
          scratch, kRecoveryChimera + split("--checkpoint {} --save-every 100 --max-restarts 9", scratch.path("run"))),
      "throw@step:1:2:0", 4);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("chimera: restart 2 of 9: no checkpoint yet, starts again after step 0\n"));
  EXPECT_THAT(complaints(result).back(),
              MatchesRegex("chimera: not restarted: it has failed in step [12] 3 times in a row"));
}

TEST(TrainingNonFiniteTest, NonFiniteStepIsSkippedOnRequest) {
  for (const auto& [fault, layout, ranks] :
       {Request{"nan@backward:1:18", kRecoveryChimera, 4}, Request{"nan@backward:3:10", kRecoveryThreads, 0}}) {
    SCOPED_TRACE(fault);
    const Scratch scratch;
    const ProgramResult result =
        run_with(canonical_training(
                     scratch, layout + split("--non-finite skip --checkpoint {} --save-every 3", scratch.path("run"))),
                 fault, ranks);
    EXPECT_EQ(result.exit_code, 0) << result.messages;
    EXPECT_THAT(complaints(result),
                ElementsAre(MatchesRegex("chimera: rank [13]: the gradient that stage [0-9] passes back "
                                         ".* is not finite in step [2-6]; step [2-6] makes no update")));
    const auto steps = read_metrics(scratch.path("metrics.jsonl"));
    ASSERT_EQ(steps.size(), 8U);
    std::size_t skipped = 0;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].contains("skipped"), steps[i].at("parameters_hash") == steps[i - 1].at("parameters_hash"));
      skipped += steps[i].contains("skipped") ? 1 : 0;
      EXPECT_EQ(steps[i].at("grad_norm").is_null(), steps[i].contains("skipped"));
    }
    EXPECT_EQ(skipped, 1U);
    const auto last = read_json(run_program(split("checkpoint show {} --format json", scratch.path("run"))).output);
    EXPECT_EQ(last.at("run").at("progress").at("updates"), 7);
  }
}

TEST(TrainingNonFiniteTest, RolledBackRunEndsLikeTheUndisturbed) {
  const Scratch scratch;
  const Words saves =
      split("--checkpoint {} --save-every 2 --non-finite rollback --max-restarts 2", scratch.path("run"));
  succeeded(run_with(canonical_training(scratch, kRecoveryChimera + saves), "nan@backward:1:18", 4));
  EXPECT_EQ(hashes_in(scratch), without_faults());
  const Scratch other;
  const ProgramResult again = succeeded(run_with(
      canonical_training(
          other, kRecoveryChimera + split("--checkpoint {} --save-every 100 --non-finite rollback --max-restarts 2",
                                          other.path("run"))),
      "nan@backward:1:18:0", 4));
  EXPECT_THAT(again.messages, HasSubstr(" makes no update\n")) << "the same step, a second time";
}

/// The update overflows; no loss has shown that yet.
TEST(TrainingNonFiniteTest, CheckpointsAreFinite) {
  const Scratch scratch;
  const ProgramResult result = run_program(
      small_training(scratch) +
      split("--model gpt2-tiny --schedule none --steps 1 --learning-rate 1e100 --dtype float32 --checkpoint {}",
            scratch.path("run")));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.messages, HasSubstr("the checkpoint of step 1 is not saved: transformer."));
  EXPECT_THAT(result.messages, HasSubstr(" is not finite"));
  EXPECT_THAT(run_program({"checkpoint", "list", scratch.path("run")}).exit_code, 2);
}

struct Recorded {
  std::string fault;
  Words flags;
  int ranks;
  bool is_inferred;  // no rank reported its own failure
  std::string op;    // a regular expression
};

TEST(TrainingFlightRecordTest, NamesTheFailedRankAndItsOp) {
  const Words hangs = "--hang-seconds 0.5";
  for (const auto& [fault, flags, ranks, is_inferred, op] :
       {Recorded{"kill@backward:2:14", kRecoveryChimera, 4, false, "[12]B[0-7] in step [1-3]"},
        Recorded{"throw@forward:2:9", kRecoveryChimera, 4, false, "[12]F[0-7]"},
        Recorded{"stop@backward:2:14", kRecoveryChimera + hangs, 4, false, "[12]B[0-7] in step [1-3]"},
        Recorded{"hang@backward:2:6", kRecoveryThreads + hangs, 0, true, "1B[0-7] in step 2"}}) {
    SCOPED_TRACE(fault);
    const Scratch scratch;
    const std::string folder = scratch.path("run");
    EXPECT_EQ(run_with(canonical_training(scratch, flags + Words{"--checkpoint", folder}), fault, ranks).exit_code, 1);
    const auto json = read_json(run_program(split("diagnose {} --format json", folder)).output);
    EXPECT_EQ(json.at("guilty"), 2);
    EXPECT_EQ(json.at("inferred"), is_inferred);
    EXPECT_THAT(json.at("op").get<std::string>(), MatchesRegex(op));
    EXPECT_EQ(json.at("ranks").size(), 4U);
    EXPECT_THAT(run_program({"diagnose", folder}).output, HasSubstr("guilty: rank 2, at "));
  }
}

TEST(TrainingFlightRecordTest, IsRemovedAfterASuccessfulRun) {
  const Scratch scratch;
  const Words records = {"--flight-record", scratch.path("records")};
  EXPECT_EQ(run_program(canonical_training(scratch, kRecoveryChimera + records)).exit_code, 0);
  const ProgramResult nothing = run_program({"diagnose", scratch.path("records")});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.messages, HasSubstr("no such run or trace"));
}

}  // namespace
}  // namespace chimera::testing
