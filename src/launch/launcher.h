#pragma once
// Starts the ranks of a job on this machine, watches them, and ends them together.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/process.h"

namespace chimera {

/// The file that this program was started from.
[[nodiscard]] std::string own_executable();

struct LaunchPlan {
  int ranks = 1;                              ///< 1 .. 1024
  std::vector<std::string> arguments;         ///< argv[1..] given to every rank
  std::string input = "";                     ///< a text that every rank can read: RankEnvironment::input_path
  std::string executable = own_executable();  ///< calls rank_environment() first thing in main()
  /// The same program, for ranks that are forked where that is safe, see Command; null: every rank loads it anew, as
  /// one that uses a GPU has to.
  ProgramEntry entry = nullptr;
  /// The job hangs once no rank has called note_progress() for so much longer than ever before in its steps; during
  /// start-up for four times as long. 0: nobody looks.
  std::chrono::milliseconds hang{0};
  /// Whether a rank that waits takes no processor time, so that one that takes some is at work (see HangWatch). Not so
  /// where it waits for a GPU.
  bool waits_idle = true;
  std::filesystem::path root = "/";  ///< of the control groups looked at, see out_of_memory_kills()
};

/// Runs the job and returns its exit code: 0; 1 where a rank failed, 2 where it failed with ExitCode::Usage; 130 or 143
/// after SIGINT or SIGTERM. Each rank is this program again: started by exec, or forked while there are no threads that
/// a fork would miss.
///
/// The first rank to fail for a reason of its own is named on stderr, one line: "chimera: rank 2 failed at 1B3: ...".
/// Ranks that only lost a peer are not: after the first of them the launcher waits up to 0.3 s for the one to blame.
/// Where the job hangs, the rank that holds it up is named instead, with what it was doing (see hang.h). Only the very
/// end waits for the reader of that line (core/console.h), for kPromptEnd at most. Then all others get SIGTERM, and
/// SIGKILL 0.5 s later. Nothing is left on any way out, SIGKILL of the launcher included: no process (see
/// rank_environment()), and no file (the store is in memory).
///
/// Call it from the main thread, with no other thread running that takes signals. Throws ConfigError for a number of
/// ranks out of range, Error where the system refuses a process or descriptor; ranks already started are gone then.
[[nodiscard]] int launch(const LaunchPlan& plan);

}  // namespace chimera
