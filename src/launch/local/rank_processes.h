#pragma once

// The rank processes of a job attempt. It starts them, and in a recovery kills lost ranks, orders the others to leave,
// starts replacements, and orders all to join. Recovery decides when each of these is allowed; Supervisor decides which
// ranks are lost.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/flight/progress.h"
#include "launch/local/failure_report.h"
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

  [[nodiscard]] bool can_recover() const { return recovery_.has_value(); }
  [[nodiscard]] bool is_recovering() const { return recovery_ && recovery_->state() != Recovery::State::Undisturbed; }
  /// Returns whether some ranks have not left the previous epoch.
  [[nodiscard]] bool is_leaving() const { return recovery_ && recovery_->state() == Recovery::State::Leaving; }
  /// Returns whether the rank is lost and has no replacement yet.
  [[nodiscard]] bool is_lost(int rank) const;
  /// Returns whether the rank has trained, and so handles signals that request saving.
  [[nodiscard]] bool has_trained(int rank) const { return !recovery_ || recovery_->has_weights(rank); }

  /// Kills these ranks and orders the others to leave the step; advance() then replaces them. If the job cannot
  /// continue, only returns why. Requires can_recover().
  [[nodiscard]] std::string lose(const std::vector<int>& ranks, const std::string& reason, std::int64_t step);
  void note(const RecoveryNote& note) { recovery().note(note); }
  /// Continues a recovery. Returns the newly started ranks.
  [[nodiscard]] std::vector<int> advance();
  /// Once all ranks have resumed, ends the recovery and returns a summary line.
  [[nodiscard]] std::optional<std::string> finish();
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Recovery& recovery();
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

}  // namespace chimera
