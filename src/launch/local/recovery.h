#pragma once

// Continues a job after the loss of ranks, without a restart. This is possible if every stage has a replica on a rank
// that still runs. All ranks then close their connections and connect again; each such set of connections is a
// *generation*, counted from 0. The launcher's supervisor (supervisor.h) drives Recovery, a state machine without
// processes. It sends orders to the ranks through socket pairs (OrderChannel), and the ranks answer with RecoveryNotes.
// In each rank, RecoveryLink receives the orders. The order to join also passes the key-value store through which the
// ranks of the next generation find each other (rendezvous), as a descriptor of an unnamed file.
//
//   Running --handle_loss()--> Leaving: ranks leave their step, replacements start
//           --join()--> Joining: all connect in the next generation; replacements receive weights
//           --finish()--> Running
//
// A generation may do without some lost ranks (--recover reroute): they are *absent*, and other ranks with the same
// stages run their ops. A process that starts for an absent rank reports when it is ready; welcome() then begins a
// generation with it.
//
// Within a generation, ranks may get *extra copies* of parameter groups that they did not hold at the launch. They send
// Resumed again, with these groups, and later generations begin with the extra copies that are left.

#include <array>
#include <bitset>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/file_descriptor.h"
#include "launch/local/failure_report.h"
#include "launch/local/restarts.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Ranks of a job on one host.
using RankSet = std::bitset<kMaxRanksOfHost>;

/// Maximum number of extra copies in a job.
constexpr std::size_t kMaxExtraCopies = 32;

/// An order of the launcher to a rank.
struct Order {
  enum class Kind : std::uint8_t {
    Leave,  ///< Abandon the step, close all connections, send RecoveryNote, and wait for the next order
    Join,   ///< Reconnect through the rendezvous store that comes with the order
  };
  Kind kind = Kind::Leave;
  std::int64_t generation = 0;                                 ///< The generation to begin
  RankSet absent = {};                                         ///< For Join: ranks that the generation does without
  std::array<GroupHolder, kMaxExtraCopies> extra_copies = {};  ///< For Join
  std::size_t num_extra_copies = 0;
};

/// Both ends of a socket pair for orders; the rank process inherits its end.
struct OrderChannel {
  FileDescriptor launcher;
  FileDescriptor rank;
};

/// Creates the channel of one rank. Throws Error if the system refuses.
[[nodiscard]] OrderChannel open_order_channel();

/// Sends an order through the launcher's end of a channel, the descriptor `launcher`, without blocking. Drops the order
/// if the rank is gone or its queue is full. `store` is the descriptor of the rendezvous store, for Join; -1: none.
void send_order(int launcher, const Order& order, int store = -1) noexcept;

/// An order as a rank receives it.
struct ReceivedOrder {
  Order order;
  FileDescriptor store;  ///< Empty except for Join
};
/// Waits for the next order at the rank's end of a channel, the descriptor `rank`. Returns nullopt once the launcher's
/// end is closed.
[[nodiscard]] std::optional<ReceivedOrder> receive_order(int rank);

/// What a rank needs to join a generation.
struct JoinedGeneration {
  FileDescriptor store;                   ///< Rendezvous store
  RankSet absent;                         ///< Ranks that the generation does without
  std::vector<GroupHolder> extra_copies;  ///< Extra copies of the other ranks
};

/// A rank's receiver of orders. A thread of its own receives them; the rank's main thread calls the member functions.
class RecoveryLink {
 public:
  /// `generation` is the generation in which the rank starts. If it is above 0, the rank is a replacement and must call
  /// rejoin(). `end_waits` must interrupt waits of the main thread for other ranks. The receiving thread calls it
  /// repeatedly, from the order to leave until rejoin().
  RecoveryLink(int rank, std::int64_t generation, FileDescriptor orders, std::function<void()> end_waits);
  RecoveryLink& operator=(RecoveryLink&&) = delete;
  ~RecoveryLink();

  /// Waits up to `timeout` for an order to leave, and returns whether it came. Call it after a failed communication,
  /// to find out whether a recovery has begun.
  [[nodiscard]] bool must_leave(std::chrono::milliseconds timeout);
  /// Sends RecoveryNote::Kind::Left and waits for the order to join. If the launcher begins another generation
  /// meanwhile, sends the note again for that generation. Calls `on_left` as soon as `end_waits` will not be called any
  /// more.
  [[nodiscard]] JoinedGeneration rejoin(const std::function<void()>& on_left);
  /// Sends RecoveryNote::Kind::Resumed. `step` is the last completed step, from 1. `groups` are the parameter groups of
  /// which this rank has an extra copy.
  void note_resumed(std::int64_t step, std::vector<std::int64_t> groups = {}) const;

  /// Returns whether this rank has joined a later generation than 0.
  [[nodiscard]] bool is_recovering() const { return generation_ > 0; }

 private:
  void take_orders();

  int rank_;
  FileDescriptor orders_;
  std::function<void()> end_waits_;
  std::int64_t generation_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::int64_t ordered_;   // newest generation that the launcher has ordered
  std::int64_t left_;      // newest generation that this rank is ready to join
  std::int64_t joined_;    // newest generation that may be joined
  JoinedGeneration next_;  // of the newest order to join
  bool is_ending_waits_ = false;
  std::thread thread_;  // last member, because it uses the others
};

/// State machine of a recovery. The supervisor calls handle_loss() when ranks are lost, note() for each RecoveryNote,
/// and join() and finish() when all_left() and all_resumed() return true. In a recovery, the other ranks abandon their
/// step and connections, new processes replace the lost ranks, all ranks join a new generation, and the replacements
/// receive the weights of other replicas. If a rank is lost after the order to join, another generation begins. Absent
/// ranks take no part until welcome().
class Recovery {
 public:
  enum class State : std::uint8_t {
    Running,  ///< No recovery is under way
    Leaving,  ///< Waits until all ranks have left their step, and all replacements have started
    Joining,  ///< Waits until all ranks have reconnected and resumed
  };
  /// What happens to lost ranks.
  enum class Replacement : std::uint8_t {
    Required,   ///< A new process replaces each; without one the job cannot continue
    Preferred,  ///< As Required, but leave_out_missing() and repeated failures of the new process make the rank absent
    None,       ///< Lost ranks are absent at once
  };
  /// `copies[g]` lists the ranks that hold parameter group g (a stage, or the tied matrix). `most` is the maximum
  /// number of recoveries; if it is 0, there may be more ranks than a RankSet has. `shards` lists the ranks that hold
  /// each shard of the optimizer. If `parts` ranks share each layer, group g has the elements g * parts to g * parts +
  /// parts - 1 of `copies`, one for each part.
  Recovery(int ranks, RankGroups copies, int most, Replacement replacement = Replacement::Required,
           RankGroups shards = {}, std::int64_t parts = 1);

  /// Decision about the loss of ranks.
  struct Answer {
    std::string why_not = "";        ///< Empty if the job can continue
    bool begins_generation = false;  ///< Whether the other ranks must be ordered to leave
  };
  /// Handles the loss of `ranks` in `step` (from 1); if `ranks` is empty, only connections are lost. If more ranks are
  /// lost in State::Leaving, they belong to the same recovery, unless they are replacements.
  [[nodiscard]] Answer handle_loss(const std::vector<int>& ranks, std::int64_t step);
  /// Processes a rank's note; ignores notes of other generations. An absent rank that has sent RecoveryNote::Kind::Left
  /// is ready to return.
  void note(const RecoveryNote& note);
  /// Makes the lost ranks that have not left absent. Only in State::Leaving.
  void leave_out_missing();
  /// Begins a generation with the absent ranks that are ready, and returns these ranks. Only in State::Running.
  [[nodiscard]] std::vector<int> welcome();
  /// Notes that the process of an absent rank has ended.
  void forget_ready(int rank) { ready_.reset(static_cast<std::size_t>(rank)); }

  /// Returns whether all ranks of State::Leaving have sent RecoveryNote::Kind::Left; then call join().
  [[nodiscard]] bool all_left() const { return state_ == State::Leaving && all_are_at(Place::Left); }
  /// Starts State::Joining. Requires that all_left() is true. Call it before the orders to join are sent.
  void join() { state_ = State::Joining; }
  /// Returns whether all ranks of State::Joining have sent RecoveryNote::Kind::Resumed; then call finish().
  [[nodiscard]] bool all_resumed() const { return state_ == State::Joining && all_are_at(Place::Resumed); }
  /// Ends the recovery: all ranks have weights again. Requires that all_resumed() is true.
  void finish();

  [[nodiscard]] State state() const { return state_; }
  /// Returns the current generation, or the generation about to begin.
  [[nodiscard]] std::int64_t generation() const { return generation_; }
  /// Returns false for absent ranks, and for replacements until finish().
  [[nodiscard]] bool has_weights(int rank) const { return has_weights_[static_cast<std::size_t>(rank)]; }
  /// Returns the last step that was completed before ranks resumed, from 1.
  [[nodiscard]] std::int64_t resumed_after() const { return resumed_after_; }
  /// Returns the number of recoveries so far.
  [[nodiscard]] int done() const { return restarts_.done(); }
  /// Returns the ranks that the current or next generation does without.
  [[nodiscard]] const RankSet& absent() const { return absent_; }
  [[nodiscard]] bool is_absent(int rank) const {
    return rank < kMaxRanksOfHost && absent_[static_cast<std::size_t>(rank)];
  }
  /// Returns whether some absent rank is ready to return.
  [[nodiscard]] bool is_any_ready() const { return ready_.any(); }
  /// Returns whether the next generation uses extra copies: some ranks are absent, or return without weights that no
  /// other launched holder has.
  [[nodiscard]] bool needs_extra_copies() const {
    return absent_.any() || !missing_copy(/*counts_extra=*/false).empty();
  }
  /// Returns the extra copies on ranks that have weights, at most kMaxExtraCopies.
  [[nodiscard]] std::vector<GroupHolder> extra_copies() const;

 private:
  /// Newest note of a rank in this generation; Elsewhere: it has sent none
  enum class Place : std::uint8_t { Elsewhere, Left, Resumed };
  [[nodiscard]] bool all_are_at(Place place) const;
  void begin_generation();
  [[nodiscard]] std::string missing_copy(bool counts_extra) const;

  RankGroups copies_;
  RankGroups shards_;
  std::int64_t parts_;
  Restarts restarts_;
  Replacement replacement_;
  State state_ = State::Running;
  std::int64_t generation_ = 0;
  std::int64_t resumed_after_ = 0;
  std::vector<Place> places_;                            // [rank]
  std::vector<bool> has_weights_;                        // [rank]
  std::vector<std::vector<std::int64_t>> extra_groups_;  // [rank]: groups of which it has an extra copy
  RankSet absent_;
  RankSet ready_;  // absent ranks that wait for welcome()
};

}  // namespace chimera
