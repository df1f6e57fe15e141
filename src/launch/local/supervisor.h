#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/flight/hang.h"
#include "launch/flight/progress.h"
#include "launch/local/failure_report.h"
#include "launch/local/launch_plan.h"
#include "launch/local/process.h"
#include "launch/local/recovery.h"

namespace chimera {

/// `orders` is an end of an OrderChannel, or -1.
using RankStarter = std::function<ChildProcess(int rank, std::int64_t epoch, int orders)>;

/// Processes of a job's ranks. The destructor kills running ones.
class RankProcesses {
 public:
  /// Starts all ranks. `progress` must outlive this object.
  RankProcesses(int ranks, int most_recoveries, RankGroups copies, ProgressPage& progress, RankStarter start);

  [[nodiscard]] const ChildProcesses& all() const { return ranks_; }
  [[nodiscard]] ChildProcesses& all() { return ranks_; }
  [[nodiscard]] const ChildProcess& operator[](int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] bool may_recover() const { return recovery_.has_value(); }
  [[nodiscard]] bool is_recovering() const { return recovery_ && recovery_->state() != Recovery::State::Undisturbed; }
  /// Returns whether some ranks have not left the previous epoch.
  [[nodiscard]] bool is_leaving() const { return recovery_ && recovery_->state() == Recovery::State::Leaving; }
  /// Returns whether the rank is lost and has no replacement yet.
  [[nodiscard]] bool is_lost(int rank) const;
  /// Returns whether the rank has trained, and so handles signals that request saving.
  [[nodiscard]] bool has_trained(int rank) const { return !recovery_ || recovery_->has_weights(rank); }

  /// Kills these ranks and orders the others to leave the step; advance() then replaces them. If the job cannot
  /// continue, only returns why. Requires may_recover().
  [[nodiscard]] std::string lose(const std::vector<int>& ranks, const std::string& reason, std::int64_t step);
  void note(const RecoveryNote& note) { recovery_->note(note); }
  /// Continues a recovery. Returns the newly started ranks.
  [[nodiscard]] std::vector<int> advance();
  /// Once all ranks have resumed, ends the recovery and returns a summary line.
  [[nodiscard]] std::optional<std::string> finish();
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  using Clock = std::chrono::steady_clock;

  void start(int rank);
  void order_to_join();

  ProgressPage& progress_;
  RankStarter start_;
  int most_;
  std::optional<Recovery> recovery_;
  ChildProcesses ranks_;
  std::vector<FileDescriptor> orders_;  // [rank]; may be empty
  std::vector<int> lost_;
  std::string reason_;
  std::int64_t step_ = 0;  // step of the first lost rank
  Clock::time_point lost_since_;
};

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

  [[nodiscard]] std::optional<Clock::time_point> next_look() const;
  void note_end(std::size_t rank, const Ending& ending);
  [[nodiscard]] bool memory_ran_out() const;
  void read_reports();
  void note(const std::optional<FailureReport>& report);
  void note_failure(int rank);
  void read_signals();
  void take_signal(int number);
  [[nodiscard]] bool all_are_in(std::initializer_list<RankProgress::Phase> phases) const;
  void judge();
  void judge_failures(bool over_time);
  void advance_recovery();
  bool lose(const std::vector<int>& ranks, int culprit, const std::string& reason);
  bool lose_failed(int culprit);
  bool hangs();
  void end_hang();
  void watch_anew();
  void blame(int rank);
  void end_job(std::string reason);
  void kill_rest();
  [[nodiscard]] StartOutcome outcome();
  [[nodiscard]] int signal_exit_code() const;
  RankRecord& record_of(int rank) { return records_[static_cast<std::size_t>(rank)]; }

  RankProcesses ranks_;
  std::vector<RankRecord> records_;
  const FileDescriptor& reports_;
  const ProgressPage& progress_;
  SignalInbox& signals_;
  const LaunchPlan& plan_;
  std::optional<std::uint64_t> kills_;
  std::string unread_;         ///< Incomplete report
  std::vector<int> failures_;  ///< in order of detection
  std::optional<HangWatch> hang_watch_;
  bool hung_ = false;
  std::optional<int> culprit_;
  std::optional<int> signal_;                ///< signal that ends the job
  std::optional<Clock::time_point> saving_;  ///< Time of the request to save
  std::optional<FlightVerdict> verdict_;
  std::optional<Clock::time_point> deadline_;  ///< End of the wait for a culprit, or for ranks to end
};

}  // namespace chimera
