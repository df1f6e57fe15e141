#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/flight/flight_record.h"
#include "launch/local/process.h"

namespace chimera {

struct RestartWords {
  const char* again = "restarted";
  const char* flag = "--max-restarts";
  const char* first = "before its first step";  ///< If the step is 0
  const char* later = "in step";                ///< Before other step numbers
};

/// Restart policy: restarts at once if each failure is at a later step; otherwise pauses longer and longer. Gives up
/// after kSameStep failures in a row in the same step.
class Restarts {
 public:
  static constexpr int kSameStep = 3;
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  explicit Restarts(int most, RestartWords words = {}) : most_(most), words_(words) {}

  struct Advice {
    bool again = false;
    std::chrono::seconds pause{0};
    std::string why_not = "";  ///< Empty if restarts were never allowed
  };
  /// `step` is the failed step, from 1; 0: before the first step.
  [[nodiscard]] Advice after_failure(std::int64_t step);
  [[nodiscard]] int done() const { return done_; }

 private:
  int most_;
  RestartWords words_;
  int done_ = 0;
  int in_same_step_ = 0;
  int without_gain_ = 0;  // failures since a new furthest step
  std::int64_t last_step_ = -1;
  std::int64_t furthest_step_ = -1;
};

[[nodiscard]] std::string own_executable();

struct NextStart {
  std::vector<std::string> arguments;  ///< Added to LaunchPlan::arguments
  std::string description;             ///< Message "goes on from step 30"
};

struct LaunchPlan {
  int ranks = 1;                              ///< 1 .. 1024
  std::vector<std::string> arguments;         ///< argv[1..]
  std::string input = "";                     ///< See RankEnvironment::input_path
  std::string executable = own_executable();  ///< Must call rank_environment() first in main()
  /// Entry point of ranks that are forked if this is safe, see Command. Null: ranks are started by exec, as GPUs
  /// require.
  ProgramEntry entry = nullptr;
  /// Limits of HangWatch: `beyond` (0: no hang detection) and `at_start`.
  std::chrono::milliseconds hang{0};
  std::chrono::milliseconds hang_at_start{0};
  /// Whether waiting ranks use no CPU time (see HangWatch). False if they wait for a GPU.
  bool waits_idle = true;
  /// Whether steps after the second run without progress notes (see HangWatch).
  bool records_steps = false;
  /// Whether ranks in their steps save after SIGUSR1 and end with kSavedExit.
  bool saves = false;
  /// Maximum number of restarts (see Restarts). `next_start` receives the failed step, from 1; 0: outside of steps.
  int most_restarts = 0;
  std::function<NextStart(std::int64_t failed_step)> next_start = {};
  /// Maximum number of recoveries (see Recovery), and the ranks of each parameter group. Ranks then have
  /// RankEnvironment::orders. A job that cannot recover is restarted.
  int most_recoveries = 0;
  RankGroups copies = {};
  std::vector<std::string> replacement_arguments = {};  ///< Added to the arguments of replacement ranks
  /// Folder of flight records, created for each attempt and removed after success. Empty: no records.
  std::string flight_folder = "";
  FlightJob flight_job = {};
  std::filesystem::path root = "/";  ///< Root for out_of_memory_kills()
};

/// Runs the job and returns its exit code: 0; 1 if a rank failed, 2 if it failed with ExitCode::Usage; 128 + n after
/// signal n (SIGINT, SIGTERM, SIGHUP, SIGUSR1). If ranks save, the first signal except SIGINT makes the job save and
/// return kSavedExit (without saving if not all ranks are in their steps). Another signal, kSameSignal or more later,
/// ends it.
///
/// Names the first rank that failed for its own reason on stderr: "chimera: rank 2 failed at 1B3: ...". After a rank
/// that only lost a peer, waits kVictimGrace for the culprit. If the job hangs, names the stuck rank and its activity.
/// Ends the other ranks by SIGTERM, and SIGKILL 0.5 s later; by SIGKILL at once if they save. Then restarts the job if
/// the plan allows it and the exit code would be 1. If recoveries are allowed, ranks that fail or hang in a step are
/// replaced, and the others continue. Finally waits up to kPromptEnd for the reader of stderr. Leaves no process (see
/// rank_environment()) or file, even if the launcher is killed by SIGKILL.
///
/// Call it from the main thread, while no other thread receives signals. Throws ConfigError if `ranks` is out of range,
/// Error if the system refuses a process or descriptor; started ranks are killed.
[[nodiscard]] int launch(const LaunchPlan& plan);

}  // namespace chimera
