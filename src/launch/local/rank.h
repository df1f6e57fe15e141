#pragma once
// The rank's side of the launcher: who am I, and what do I say when I fail.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/rendezvous_point.h"
#include "launch/flight/progress.h"
#include "launch/local/failure_report.h"
#include "launch/local/place.h"

namespace chimera {

/// A rank's place in the job.
struct RankEnvironment {
  int rank = 0;  ///< 0 .. world_size - 1
  int world_size = 1;
  MeetingPoint meeting;
  std::string input_path;  ///< file with the launcher's LaunchPlan::input, in memory; empty where that is empty
  bool placed = false;     ///< another launcher started it, which does not watch it as ours does
  std::shared_ptr<const MeetingFile> meeting_file = {};  ///< that of such a rank, until all have joined
  std::optional<int> orders = {};  ///< its end of an OrderChannel, where its job outlives the loss of ranks
  std::int64_t epoch = 0;          ///< that it begins in: after 0 it takes the place of a rank that was lost
};

/// Does what rank_environment() does, in a process that another launcher has put there. From now on report_failure()
/// tells people, and torchrun where that has given a file for it (TORCHELASTIC_ERROR_FILE), and this process ends with
/// ExitCode::PeerLost when the one dies by which a launcher has started it (not one by hand, who may leave it alone).
/// Throws what meeting_point() throws.
[[nodiscard]] RankEnvironment join_place(const RankPlace& place);

/// In a process that launch() started, returns its place in the job. Elsewhere it returns and changes nothing. Call it
/// once, first thing in main(): it ties the process's life to the launcher's (SIGKILL when that one dies; a process
/// that finds itself already orphaned exits with ExitCode::PeerLost), leaves Ctrl-C to the launcher, makes a write to a
/// closed pipe an error instead of the end, hides the launcher's descriptors from the rank's own children, and passes
/// fault_point("start") as its rank. Throws ConfigError where the variables the launcher sets are incomplete or
/// malformed.
[[nodiscard]] std::optional<RankEnvironment> rank_environment();

/// Tells the launcher, or the ThreadWatch that the calling thread has joined, what this rank begins to do; by one
/// thread at a time. Does nothing outside a rank.
void note_progress(const RankProgress& progress);

/// Where the calling thread notes progress from now on, as rank `rank`; null: where the process does.
void note_progress_on(ProgressPage* page, int rank);

/// Tells the launcher, or whom join_place() names, why this rank is about to end with a failure. `op` is what it was
/// doing, e.g. "1B3", or empty. `own_cause` false: only because a peer was lost; then exit with ExitCode::PeerLost.
/// `usage`: it exits with ExitCode::Usage. `is_final`: no other rank could take its place. Does nothing outside a rank.
void report_failure(const std::string& op, const std::string& message, bool own_cause, bool usage = false,
                    bool is_final = false);

/// Tells the launcher how far this rank is in a recovery.
void note_recovery(const RecoveryNote& note);

}  // namespace chimera
