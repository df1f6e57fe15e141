#pragma once

// The rank's side of the launcher: its place in the job, its rendezvous, and the reports of its failure.
// rank_environment() is for ranks of launch(), join_place() for ranks of other launchers.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/rendezvous_point.h"
#include "launch/flight/progress.h"
#include "launch/local/failure_report.h"
#include "launch/local/rendezvous.h"

namespace chimera {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  RendezvousPoint rendezvous;
  std::string input_path;  ///< Memory file with LaunchPlan::input; may be empty
  bool placed = false;     ///< Another launcher started it and does not supervise it
  std::shared_ptr<const RendezvousFile> rendezvous_file =
      {};                          ///< Rendezvous file until all ranks have joined, if `placed`; else null
  std::optional<int> orders = {};  ///< Rank's end of an OrderChannel, if the job can recover
  std::int64_t epoch = 0;          ///< Initial epoch; > 0 for a replacement
};

/// Initializes a rank of another launcher. report_failure() then writes to stderr and to torchrun's
/// TORCHELASTIC_ERROR_FILE, if set. The process ends with ExitCode::PeerLost when its launcher dies, unless it was
/// started by hand. Throws like rendezvous_point().
[[nodiscard]] RankEnvironment join_place(const RankPlace& place);

/// Returns nullopt unless launch() started this process. Call it once, first in main(). The kernel then kills this
/// process when the launcher dies; if it is already dead, exits with ExitCode::PeerLost. Ignores SIGINT and SIGPIPE,
/// closes the launcher's descriptors on exec, and passes fault_point("start"). Throws ConfigError if the launcher's
/// variables are incomplete or malformed.
[[nodiscard]] std::optional<RankEnvironment> rank_environment();

/// Reports why this rank is about to fail, as in join_place() or to the launcher. Then exit with exit_code_of(report).
/// Does nothing outside a rank.
void report_failure(FailureReport report);

void note_recovery(const RecoveryNote& note);

}  // namespace chimera
