#pragma once

// Supervises the ranks of a job attempt from their start to their end. It polls exits, failure reports, signals and
// hangs, and then decides once: recover, end the job, or go on. The order of these decisions is in decide().
//
//   exits, reports, signals, hang watch -> decide() -> RankProcesses::lose() or end_job() -> StartOutcome

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/flight/hang.h"
#include "launch/local/failure_report.h"
#include "launch/local/launch_plan.h"
#include "launch/local/line_reader.h"
#include "launch/local/process.h"
#include "launch/local/rank_processes.h"

namespace chimera {

/// Files and shared memory that the launcher passes to its ranks.
struct RankChannels {
  FileDescriptor store;        ///< Memory file
  FileDescriptor input;        ///< Common input, a memory file; may be empty
  FileDescriptor report_read;  ///< Nonblocking
  FileDescriptor report_write;
  ProgressPage progress;
};

struct StartOutcome {
  int exit_code = 0;
  /// Step (from 1) of the failed rank, 0 if outside of steps; empty if no rank failed
  std::optional<std::int64_t> failed_step;
  std::optional<FlightVerdict> verdict;  ///< Empty after a normal end
};

/// Supervises the ranks until all have ended. Writes the cause of an abnormal end to messages(). References must outlive
/// the call.
[[nodiscard]] StartOutcome supervise(RankProcesses ranks, const RankChannels& channels, SignalInbox& signals,
                                     const LaunchPlan& plan);

}  // namespace chimera
