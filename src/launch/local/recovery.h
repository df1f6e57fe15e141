#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/local/failure_report.h"
#include "launch/local/launcher.h"
#include "schedule/rank_layout.h"

// A rank's part in the recoveries of its job.

// How a job outlives the loss of ranks, as its launcher sees it: decisions on what happened, without processes.

namespace chimera {

/// Takes the launcher's orders on a thread of its own. All else is for the rank's thread.
class RecoveryLink {
 public:
  /// `orders`: the rank's end of an OrderChannel. `epoch`: that it begins in; more than 0: in the place of a rank that
  /// was lost, and the launcher waits for rejoin(). `end_waits`: has to end what the rank's thread waits for; called on
  /// the other thread from the order to leave on until that thread calls rejoin(), again and again.
  RecoveryLink(int rank, std::int64_t epoch, FileDescriptor orders, std::function<void()> end_waits);
  RecoveryLink(const RecoveryLink&) = delete;
  RecoveryLink& operator=(const RecoveryLink&) = delete;
  ~RecoveryLink();

  /// Whether the epoch is to be left; waits for that order, up to `patience`.
  [[nodiscard]] bool must_leave(std::chrono::milliseconds patience);
  /// Tells the launcher that this rank has no connection any more, or none yet, and waits for the order to join.
  /// Returns the store at which all ranks meet. `on_left` is called when `end_waits` is called no more.
  [[nodiscard]] FileDescriptor rejoin(const std::function<void()>& on_left);
  /// Tells the launcher that the rank is about to go on after that step, from 1.
  void note_resumed(std::int64_t step) const;

  /// Whether the rank is in an epoch after a loss, or about to join one.
  [[nodiscard]] bool is_recovering() const { return epoch_ > 0; }

 private:
  void take_orders();

  int rank_;
  FileDescriptor orders_;
  std::function<void()> end_waits_;
  std::int64_t epoch_;  // of the rank's thread
  std::mutex mutex_;
  std::condition_variable news_;
  std::int64_t ordered_;  // the newest epoch that is to begin
  std::int64_t left_;     // the newest epoch for which all else was left
  std::int64_t joined_;   // the newest epoch that may be joined
  FileDescriptor store_;  // of that one
  bool is_ending_waits_ = false;
  std::thread thread_;  // last: it uses all others
};

/// Ranks of which others have copies can be lost. Then all others leave the step that they are in and every connection;
/// each of the lost is replaced by a new process; once the last has left and the new ones stand, all join a new epoch,
/// and those that have weights give them to those that have none. A rank that is lost on the way is replaced
/// likewise; after the order to join, that takes an epoch more.
class Recovery {
 public:
  enum class State : std::uint8_t {
    Undisturbed,  ///< the job trains
    Leaving,      ///< waits until all ranks have left, or have started
    Joining,      ///< waits until all ranks go on
  };
  /// `copies`: [parameter group] the ranks that hold it. `most`: recoveries that are allowed.
  Recovery(int ranks, RankGroups copies, int most);

  struct Answer {
    std::string why_not;        ///< the job cannot go on; empty: it can
    bool begins_epoch = false;  ///< all that are not lost are to leave
  };
  /// These ranks are lost, and are to be replaced; none: only connections are. `step`: that the job was in. Ranks that
  /// are lost while the others leave belong to the same recovery, unless they have already taken the place of others.
  [[nodiscard]] Answer lose(const std::vector<int>& ranks, std::int64_t step);
  /// What a rank says; notes of an epoch that never came to be are dropped.
  void note(const RecoveryNote& note);

  /// Whether all ranks can be told to join; then join().
  [[nodiscard]] bool all_left() const { return state_ == State::Leaving && all_are_at(Place::Left); }
  void join() { state_ = State::Joining; }
  /// Whether all go on; then finish().
  [[nodiscard]] bool all_resumed() const { return state_ == State::Joining && all_are_at(Place::Resumed); }
  void finish();

  [[nodiscard]] State state() const { return state_; }
  /// The epoch that is, or is about to begin.
  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  /// Whether the rank has the weights of a step, and has had them since it is in the job.
  [[nodiscard]] bool has_weights(int rank) const { return has_weights_[static_cast<std::size_t>(rank)]; }
  /// The last step that all ranks had done when they went on.
  [[nodiscard]] std::int64_t resumed_after() const { return resumed_after_; }
  [[nodiscard]] int done() const { return restarts_.done(); }

 private:
  enum class Place : std::uint8_t { Elsewhere, Left, Resumed };
  [[nodiscard]] bool all_are_at(Place place) const;
  [[nodiscard]] std::string missing_copy() const;

  RankGroups copies_;
  Restarts restarts_;
  State state_ = State::Undisturbed;
  std::int64_t epoch_ = 0;
  std::int64_t resumed_after_ = 0;
  std::vector<Place> places_;      // [rank]
  std::vector<bool> has_weights_;  // [rank]
};

}  // namespace chimera
