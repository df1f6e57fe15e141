#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/flight/flight_record.h"
#include "launch/local/process.h"

// Whether a job that failed is started again, and when: decisions on the steps at which it failed.

// Starts the ranks of a job on this machine, watches them, and ends them together.

namespace chimera {

/// What is counted, in words.
struct RestartWords {
  const char* again = "restarted";
  const char* flag = "--max-restarts";
  const char* first = "before its first step";  ///< where the step is 0
  const char* later = "in step";                ///< before the number of any other
};

/// Counts the starts of one job that have failed. A job that gets further each time is started again at once. One that
/// does not is made to wait longer and longer, and is given up once it has failed kSameStep times in a row in the same
/// step: what ends it there would do so again.
class Restarts {
 public:
  static constexpr int kSameStep = 3;
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  /// `most`: that are allowed.
  explicit Restarts(int most, RestartWords words = {}) : most_(most), words_(words) {}

  /// What to do now that a start has failed.
  struct Advice {
    bool again = false;
    std::chrono::seconds pause{0};  ///< before the next start
    std::string why_not = "";       ///< where it is given up, unless no restart was ever allowed
  };
  /// `step`: that the job was in, from 1; 0: before the first one it would have done.
  [[nodiscard]] Advice after_failure(std::int64_t step);
  /// Restarts that were advised so far.
  [[nodiscard]] int done() const { return done_; }

 private:
  int most_;
  RestartWords words_;
  int done_ = 0;
  int in_same_step_ = 0;             // failures in a row
  int without_gain_ = 0;             // failures since one came further than all before
  std::int64_t last_step_ = -1;      // of the last failure
  std::int64_t furthest_step_ = -1;  // of all failures
};

/// The file that this program was started from.
[[nodiscard]] std::string own_executable();

/// How a job that has failed is started again.
struct NextStart {
  std::vector<std::string> arguments;  ///< added to those that ranks are given
  std::string description;             ///< where it goes on, for people: "goes on from step 30"
};

struct LaunchPlan {
  int ranks = 1;                              ///< 1 .. 1024
  std::vector<std::string> arguments;         ///< argv[1..] given to every rank
  std::string input = "";                     ///< a text that every rank can read: RankEnvironment::input_path
  std::string executable = own_executable();  ///< calls rank_environment() first thing in main()
  /// The same program, for ranks that are forked where that is safe, see Command; null: every rank loads it anew, as
  /// one that uses a GPU has to.
  ProgramEntry entry = nullptr;
  /// The job hangs once no rank has called note_progress() for so much longer than ever before in its steps; during
  /// start-up and its first step for `hang_at_start`, where 0 is four times as long, unless a rank was stopped by a
  /// signal. 0: nobody looks.
  std::chrono::milliseconds hang{0};
  std::chrono::milliseconds hang_at_start{0};
  /// Whether a rank that waits takes no processor time, so that one that takes some is at work (see HangWatch). Not so
  /// where it waits for a GPU.
  bool waits_idle = true;
  /// Whether ranks in their steps take SIGUSR1 as the request to save where they are, and then end with
  /// kSavedExit.
  bool saves = false;
  /// How often a job that has failed is started again (see Restarts), and from where, which is asked each time, with
  /// the step, from 1, in which it failed; 0: in none.
  int most_restarts = 0;
  std::function<NextStart(std::int64_t failed_step)> next_start = {};
  /// How often a job that loses ranks in its steps goes on with new ones in their place (see Recovery), and who holds
  /// what. Such a rank has RankEnvironment::orders. Where a job cannot go on so, it is started again.
  int most_recoveries = 0;
  RankGroups copies = {};
  std::vector<std::string> replacement_arguments = {};  ///< added to those of a rank that takes the place of another
  /// Where ranks record what they do, and who they are: made for each start, with how it ended, and removed after one
  /// that ended well; where it cannot be made that is said, and the job runs without. Empty: nowhere.
  std::string flight_folder = "";
  FlightJob flight_job = {};
  std::filesystem::path root = "/";  ///< of the control groups looked at, see out_of_memory_kills()
};

/// Runs the job and returns its exit code: 0; 1 where a rank failed, 2 where it failed with ExitCode::Usage; 128 + n
/// after signal n, which is SIGINT, SIGTERM, SIGHUP or SIGUSR1. Where ranks save, the first of the last three has them
/// do that, and one that comes kSameSignal later ends the job; it then returns kSavedExit, as it does where such a
/// signal comes before all ranks are in their steps. Each rank is this program again: started by exec, or forked while
/// there are no threads that a fork would miss.
///
/// The first rank to fail for a reason of its own is named on stderr, one line: "chimera: rank 2 failed at 1B3: ...".
/// Ranks that only lost a peer are not: after the first of them the launcher waits up to 0.3 s for the one to blame.
/// Where the job hangs, the rank that holds it up is named instead, with what it was doing (see hang.h). Only the very
/// end waits for the reader of that line (core/console.h), for kPromptEnd at most. Then all others get SIGTERM, and
/// SIGKILL 0.5 s later; or SIGKILL at once, where they save. Once they are gone the job is started again, where the
/// plan allows it and the exit code would have been 1. Where the plan allows recoveries, a rank that fails or hangs in
/// the job's steps is killed and replaced, and the others go on; one line says so. Nothing is left on any way out,
/// SIGKILL of the launcher included: no process (see rank_environment()), and no file (the store is in memory).
///
/// Call it from the main thread, with no other thread running that takes signals. Throws ConfigError for a number of
/// ranks out of range, Error where the system refuses a process or descriptor; ranks already started are gone then.
[[nodiscard]] int launch(const LaunchPlan& plan);

}  // namespace chimera
