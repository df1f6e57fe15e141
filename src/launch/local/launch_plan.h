#pragma once

// Everything that the launcher of one host needs to know about a job: the command of its ranks, and what to do when
// ranks hang, fail or are signaled. `chimera train` fills it; launcher.h runs it.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/flight/flight_record.h"
#include "launch/local/process.h"

namespace chimera {

inline constexpr int kMostRanksOfHost = 1024;  ///< On one host

[[nodiscard]] std::string own_executable();

struct NextStart {
  std::vector<std::string> arguments;  ///< Added to LaunchPlan::arguments
  std::string description;             ///< Message "goes on from step 30"
};

struct LaunchPlan {
  int ranks = 1;                              ///< 1 .. kMostRanksOfHost
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

}  // namespace chimera
