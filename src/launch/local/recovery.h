#pragma once

// Continues a job after the loss of ranks, without a restart: replicas of a stage on other ranks still hold its
// weights. Recovery is the launcher's state machine, without processes. RecoveryLink is the rank's end of it: it leaves
// the step and joins the next epoch (generation of connections) on order. Orders pass through a socket pair that the
// rank inherits, since a socket can also pass the rendezvous store of the next epoch, an unnamed file.
//
//   Undisturbed --lose()--> Leaving: ranks leave their step, replacements start
//               --join()--> Joining: all connect in the next epoch; replacements receive weights
//               --finish()--> Undisturbed

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/local/failure_report.h"
#include "launch/local/restarts.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// An order during a recovery. An epoch is a generation of connections, counted from 0.
struct Order {
  enum class Kind : std::uint8_t {
    Leave,  ///< Leave the step and all connections, send RecoveryNote, and wait for the next order
    Join,   ///< Reconnect at the store of the order
  };
  Kind kind = Kind::Leave;
  std::int64_t epoch = 0;
};

/// Both ends of the channel; the rank inherits its end.
struct OrderChannel {
  FileDescriptor launcher;
  FileDescriptor rank;
};

/// Throws Error if the system refuses.
[[nodiscard]] OrderChannel open_order_channel();

/// Sends an order without blocking; drops it if the rank is gone or its queue is full. Join passes the descriptor
/// `store`.
void send_order(int launcher, const Order& order, int store = -1) noexcept;

struct ReceivedOrder {
  Order order;
  FileDescriptor store;
};
/// Waits for the next order; nullopt once the launcher's end is closed.
[[nodiscard]] std::optional<ReceivedOrder> receive_order(int rank);

/// Receives the launcher's orders on its own thread. Methods are for the rank's thread.
class RecoveryLink {
 public:
  /// If `epoch`, the initial one, is above 0, the rank is a replacement and must call rejoin(). `end_waits` interrupts
  /// waits of the rank's thread; it is called repeatedly from the order to leave until rejoin().
  RecoveryLink(int rank, std::int64_t epoch, FileDescriptor orders, std::function<void()> end_waits);
  RecoveryLink(const RecoveryLink&) = delete;
  RecoveryLink& operator=(const RecoveryLink&) = delete;
  ~RecoveryLink();

  /// Waits up to `patience` for an order to leave. Returns whether it came.
  [[nodiscard]] bool must_leave(std::chrono::milliseconds patience);
  /// Sends RecoveryNote and waits for the order to join. Returns the rendezvous store. Calls `on_left` once `end_waits`
  /// is no longer called.
  [[nodiscard]] FileDescriptor rejoin(const std::function<void()>& on_left);
  /// `step` counts from 1.
  void note_resumed(std::int64_t step) const;

  [[nodiscard]] bool is_recovering() const { return epoch_ > 0; }

 private:
  void take_orders();

  int rank_;
  FileDescriptor orders_;
  std::function<void()> end_waits_;
  std::int64_t epoch_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::int64_t ordered_;  // newest epoch that the launcher has ordered
  std::int64_t left_;     // newest epoch that this rank is ready to join
  std::int64_t joined_;   // newest epoch that may be joined
  FileDescriptor store_;
  bool is_ending_waits_ = false;
  std::thread thread_;  // last member, because it uses the others
};

/// Recovery from lost ranks, as a state machine without processes. Other ranks must hold the weights of the lost ranks.
/// They leave their step and connections, new processes replace the lost ranks, all join a new epoch, and replacements
/// receive weights. A rank lost after the order to join needs another epoch.
class Recovery {
 public:
  enum class State : std::uint8_t {
    Undisturbed,
    Leaving,  ///< Waits until all ranks have left or started
    Joining,  ///< Waits until all ranks have resumed
  };
  /// `copies[g]` lists the ranks that hold parameter group g. `most` limits the recoveries.
  Recovery(int ranks, RankGroups copies, int most);

  struct Answer {
    std::string why_not = "";   ///< Empty if the job can continue
    bool begins_epoch = false;  ///< The other ranks must leave
  };
  /// Handles a loss; if `ranks` is empty, only of connections. Ranks lost while others leave belong to the same
  /// recovery, unless they are replacements.
  [[nodiscard]] Answer lose(const std::vector<int>& ranks, std::int64_t step);
  /// Processes a rank's note; ignores notes of other epochs.
  void note(const RecoveryNote& note);

  /// Returns whether all ranks may join; then call join().
  [[nodiscard]] bool all_left() const { return state_ == State::Leaving && all_are_at(Place::Left); }
  void join();
  /// Returns whether all ranks have resumed; then call finish().
  [[nodiscard]] bool all_resumed() const { return state_ == State::Joining && all_are_at(Place::Resumed); }
  void finish();

  [[nodiscard]] State state() const { return state_; }
  /// Returns the current epoch, or the epoch about to begin.
  [[nodiscard]] std::int64_t epoch() const { return epoch_; }
  /// Returns false for replacements until finish().
  [[nodiscard]] bool has_weights(int rank) const { return has_weights_[static_cast<std::size_t>(rank)]; }
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
