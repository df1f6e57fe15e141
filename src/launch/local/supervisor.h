#pragma once
// Watches the running ranks of one start of a job, and ends them together.

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/flight/hang.h"
#include "launch/flight/progress.h"
#include "launch/local/launcher.h"
#include "launch/local/rank_processes.h"
#include "launch/local/signal_inbox.h"
#include "launch/local/verdict.h"

namespace chimera {

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
