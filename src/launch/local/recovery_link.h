#pragma once
// A rank's part in the recoveries of its job.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "core/file_descriptor.h"

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

}  // namespace chimera
