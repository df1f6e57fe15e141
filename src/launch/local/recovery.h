#pragma once
// How a job outlives the loss of ranks, as its launcher sees it: decisions on what happened, without processes.

#include <cstdint>
#include <string>
#include <vector>

#include "launch/local/failure_report.h"
#include "launch/local/restarts.h"
#include "schedule/rank_layout.h"

namespace chimera {

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
