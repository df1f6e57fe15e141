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

/// Supervises the rank processes of an attempt. Each poll reads all pending events before it decides, so that a rank's
/// report or a signal to the process group takes precedence over the deaths it causes.
class Supervisor {
 public:
  /// `kills` is out_of_memory_kills() before the start. References must outlive this object.
  Supervisor(RankProcesses ranks, const RankChannels& channels, SignalInbox& signals, const LaunchPlan& plan,
             std::optional<std::uint64_t> kills);

  /// Writes the cause of an abnormal end to messages().
  [[nodiscard]] StartOutcome run();

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::optional<Clock::time_point> next_poll() const;
  void note_end(std::size_t rank, const Ending& ending);
  [[nodiscard]] bool has_memory_run_out() const;
  void read_reports();
  void note_report(const std::optional<FailureReport>& report);
  void note_failure(int rank);
  void handle_signal(int number);
  [[nodiscard]] bool are_all_in(std::initializer_list<RankProgress::Phase> phases) const;
  void decide();
  void handle_failures(bool is_over_time);
  void advance_recovery();
  bool recover_from(const std::vector<int>& lost, int culprit, const std::string& reason);
  bool replace_failed_ranks(int culprit);
  [[nodiscard]] bool is_hanging();
  void handle_hang();
  void restart_hang_watch();
  void end_job(std::string reason, std::optional<int> culprit = std::nullopt);
  [[nodiscard]] StartOutcome outcome() const;
  [[nodiscard]] int signal_exit_code() const;
  RankOutcome& outcome_of(int rank) { return outcomes_[static_cast<std::size_t>(rank)]; }

  RankProcesses ranks_;
  std::vector<RankOutcome> outcomes_;
  LineReader reports_;
  const ProgressPage& progress_;
  SignalInbox& signals_;
  const LaunchPlan& plan_;
  std::optional<std::uint64_t> kills_;
  std::vector<int> failures_;  ///< in order of detection
  std::optional<HangWatch> hang_watch_;
  std::optional<int> signal_;                  ///< signal that ends the job
  std::optional<Clock::time_point> saving_;    ///< Time of the request to save
  std::optional<FlightVerdict> verdict_;       ///< Set once the job ends
  std::optional<Clock::time_point> deadline_;  ///< End of the wait for a culprit, or for ranks to end
};

}  // namespace chimera
