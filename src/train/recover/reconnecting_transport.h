#pragma once

// The transport of a job that continues after the loss of ranks (--recover twin or reroute). If a rank is lost, the
// other ranks abandon their step and break all connections. When the launcher orders it (launch/local/recovery.h), they
// connect again, together with the replacement or without the lost rank. Trainer uses the same Transport object before
// and after this (rank_replacement.h). Without a loss, all ranks may also reconnect between two steps, to continue in
// another order of ops (--adapt all).

#include <exception>

#include "core/rendezvous_point.h"
#include "launch/local/rank.h"
#include "launch/local/recovery.h"
#include "transport/connection_breaker.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// A transport that gets new connections, the next *generation*, after each loss of a rank. Messages of different
/// generations cannot mix, because no connection lives longer than its generation. TrainerHandover (train/loop) calls
/// its functions.
class ReconnectingTransport final : public ForwardingTransport {
 public:
  /// Connects to the other ranks through the store at `rendezvous`. `breaker` must be able to break the connections.
  /// `is_first` is true until a rank is lost.
  using Connect = std::function<std::unique_ptr<Transport>(
      const RendezvousPoint& rendezvous, const std::shared_ptr<ConnectionBreaker>& breaker, bool is_first)>;

  /// Requires rank.orders, the rank's end of an OrderChannel, on which the launcher sends its orders.
  explicit ReconnectingTransport(const RankEnvironment& rank);

  /// Call it at the start and after each leave(), then join(). In later generations, waits for the launcher's order
  /// to join. The result is valid until the next call.
  [[nodiscard]] const JoinedGeneration& await_generation();
  /// Connects by calling `connect`. Throws its errors.
  void join(const Connect& connect);
  /// Closes the connections; waits until all other ranks do so, too. Then call join().
  void reset();
  /// Returns whether the generation is not the first.
  [[nodiscard]] bool is_recovering() const { return link_.is_recovering(); }
  /// Tells the launcher that this rank trains again. `step` is the last completed step, from 1; `groups` are the
  /// parameter groups of which this rank has an extra copy.
  void note_resumed(std::int64_t step, std::vector<std::int64_t> groups) const {
    link_.note_resumed(step, std::move(groups));
  }

  /// Returns whether the loss of another rank caused `error` in `op`, so that this rank must leave its step. Waits for
  /// the launcher's order to leave (after errors other than PeerLostError only for 0.3 s), and breaks the connections.
  [[nodiscard]] bool must_leave(const std::exception& error, const std::string& op);
  /// Closes the broken connections. No transfer of this rank may be in progress.
  void leave();

 private:
  int rank_;
  RendezvousPoint rendezvous_;
  JoinedGeneration generation_;  // Keeps the store of `rendezvous_` open
  bool is_first_ = true;
  int resets_ = 0;  // In this generation
  std::shared_ptr<ConnectionBreaker> breaker_ = std::make_shared<ConnectionBreaker>();
  std::unique_ptr<Transport> connected_;
  RecoveryLink link_;  // Last member: its thread uses the breaker
};

}  // namespace chimera
