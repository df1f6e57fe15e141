#pragma once

// How a rank, one of the processes of a job, learns its number and where to meet the other ranks, and how it reports a
// failure. main() first calls rank_environment(), which returns a value if launch() of chimera started the process. If
// another launcher started it, such as torchrun, find_place() (place.h) returns its rank, and join_external_launcher()
// makes the RankEnvironment.

#include <memory>

#include "core/rendezvous_point.h"
#include "launch/flight/progress.h"
#include "launch/local/failure_report.h"
#include "launch/local/place.h"
#include "launch/local/rendezvous.h"

namespace chimera {

/// Environment of a rank process: its rank, and how it reaches the other ranks and its launcher.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  RendezvousPoint rendezvous;  ///< where the ranks meet; for the transport
  std::string input_path;      ///< Memory file with LaunchPlan::input; may be empty
  bool placed = false;         ///< Another launcher started this rank and does not supervise it
  /// Keeps the rendezvous file of ranks that another launcher started, until all have joined; else null
  std::shared_ptr<const RendezvousFile> rendezvous_file = {};
  std::optional<int> orders = {};  ///< Descriptor from which the rank reads orders (recovery.h), if the job can recover
  /// Generation of connections (recovery.h) that the rank joins; above 0 if it replaces a lost rank
  std::int64_t generation = 0;
  std::optional<RankPlace> remote = {};  ///< Set if an agent (launch/hosts/remote_rank.h) started this rank
};

/// Initializes a rank that another launcher started. From then on, report_failure() writes to stderr and to torchrun's
/// TORCHELASTIC_ERROR_FILE, if set. The process ends with ExitCode::PeerLost when its parent process dies, unless the
/// user set its variables by hand. Throws the errors of rendezvous_point() (rendezvous.h).
[[nodiscard]] RankEnvironment join_external_launcher(const RankPlace& place);

/// Returns the environment of this rank, or nullopt unless launch() (launcher.h) started this process. Call it once,
/// first in main(). Makes the kernel kill this process when the launcher dies; if it is already dead, exits with
/// ExitCode::PeerLost. Ignores SIGINT and SIGPIPE, closes the launcher's descriptors on exec, and calls
/// fault_point("start"), where tests inject faults. Throws ConfigError if the launcher's variables are incomplete or
/// malformed.
[[nodiscard]] std::optional<RankEnvironment> rank_environment();

/// Reports why this rank is about to fail: to launch(), or to stderr if another launcher started it. The caller then
/// exits with exit_code_of(report). Does nothing in a process that is not a rank.
void report_failure(FailureReport report);

/// Sends the progress of a recovery to launch(). Only for ranks that launch() started.
void note_recovery(const RecoveryNote& note);

}  // namespace chimera
