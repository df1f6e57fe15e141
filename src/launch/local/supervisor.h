#pragma once

#include <chrono>
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
#include "launch/local/launcher.h"
#include "launch/local/process.h"
#include "launch/local/recovery.h"

// The processes of a job's ranks, of which some are replaced while the job goes on.

// Watches the running ranks of one start of a job, and ends them together.

namespace chimera {

/// Starts a rank. `orders`: its end of an OrderChannel, which it inherits; -1: it has none. `epoch`: that it begins in.
using RankStarter = std::function<ChildProcess(int rank, std::int64_t epoch, int orders)>;

/// Owns the processes: those that run when it goes are killed.
class RankProcesses {
 public:
  /// Starts all ranks. `most_recoveries`, `copies`: as LaunchPlan has them. The page is borrowed.
  RankProcesses(int ranks, int most_recoveries, RankGroups copies, ProgressPage& progress, RankStarter start);

  [[nodiscard]] const std::vector<ChildProcess>& all() const { return ranks_; }
  [[nodiscard]] std::vector<ChildProcess>& all() { return ranks_; }
  [[nodiscard]] const ChildProcess& operator[](int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool any_running() const;

  /// Whether ranks can be lost at all; and whether some have been, and the others have not gone on yet.
  [[nodiscard]] bool may_recover() const { return recovery_.has_value(); }
  [[nodiscard]] bool is_recovering() const { return recovery_ && recovery_->state() != Recovery::State::Undisturbed; }
  /// Whether some have not yet left the epoch in which others were lost.
  [[nodiscard]] bool is_leaving() const { return recovery_ && recovery_->state() == Recovery::State::Leaving; }
  /// Whether the rank was lost, and the process in its place has not started.
  [[nodiscard]] bool is_lost(int rank) const;
  /// Whether the rank has trained, so that it knows the signals that ask it to save.
  [[nodiscard]] bool has_trained(int rank) const { return !recovery_ || recovery_->has_weights(rank); }

  /// Kills these ranks and has the others leave the step, so that advance() can replace them. `reason`: of the loss,
  /// for people; `step`: that the job was in. Returns why the job cannot go on; then nothing has happened. May recover.
  [[nodiscard]] std::string lose(const std::vector<int>& ranks, const std::string& reason, std::int64_t step);
  void note(const RecoveryNote& note) { recovery_->note(note); }
  /// Does what is next in a recovery. Returns the ranks that it has started.
  [[nodiscard]] std::vector<int> advance();
  /// Once all ranks go on, one line about what happened. The recovery is over then.
  [[nodiscard]] std::optional<std::string> finish();
  /// Why ranks were lost in the recovery under way.
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  using Clock = std::chrono::steady_clock;

  void start(int rank);
  void order_to_join();

  ProgressPage& progress_;
  RankStarter start_;
  int most_;
  std::optional<Recovery> recovery_;
  std::vector<ChildProcess> ranks_;
  std::vector<FileDescriptor> orders_;  // [rank]; none where nobody may recover
  std::vector<int> lost_;               // not yet replaced
  std::string reason_;
  std::int64_t step_ = 0;         // in which the first of them was lost
  Clock::time_point lost_since_;  // that one
};

/// What the launcher shares with its ranks.
struct RankChannels {
  FileDescriptor store;        ///< the rendezvous store, a file in memory
  FileDescriptor input;        ///< the ranks' common input, likewise; empty where they have none
  FileDescriptor report_read;  ///< never blocks
  FileDescriptor report_write;
  ProgressPage progress;
};

/// How one start of a job has ended.
struct StartOutcome {
  int exit_code = 0;
  std::optional<std::int64_t> failed_step;  ///< that the rank to blame was in, from 1; 0: in none. None: no rank failed
  std::optional<FlightVerdict> verdict;     ///< where it did not end by itself
};

/// Watches running ranks until all have ended. Each round takes in all news before it judges any: what a rank reported
/// before it died, and a signal sent to the whole process group, count before the deaths that they explain.
class Supervisor {
 public:
  /// `kills`: out_of_memory_kills() before the first rank started. All else is borrowed.
  Supervisor(RankProcesses ranks, const RankChannels& channels, SignalInbox& signals, const LaunchPlan& plan,
             std::optional<std::uint64_t> kills);

  /// Returns when no rank is left; says on messages() why the job has ended, where it did not by itself.
  [[nodiscard]] StartOutcome run();

 private:
  using Clock = std::chrono::steady_clock;

  void wait_for_news() const;
  void reap();
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
  std::string unread_;         ///< the part of a report that has come
  std::vector<int> failures_;  ///< ranks, as they were seen to fail
  std::optional<HangWatch> hang_watch_;
  bool hung_ = false;
  std::optional<int> culprit_;               ///< who failed, or holds the job up
  std::optional<int> signal_;                ///< that asks the job to end
  std::optional<Clock::time_point> saving_;  ///< since when the ranks are asked to save, and to end after that
  std::optional<FlightVerdict> verdict_;
  std::optional<Clock::time_point> deadline_;  ///< of the grace for a culprit; once ending, of the ranks
};

}  // namespace chimera
