#pragma once
// The processes of a job's ranks, of which some are replaced while the job goes on.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/flight/progress.h"
#include "launch/local/process.h"
#include "launch/local/recovery.h"

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

}  // namespace chimera
