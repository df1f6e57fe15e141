#pragma once

// Connections of a job that replaces lost ranks (--recover twin). A rank loss breaks all connections; survivors leave
// the step, and connect again, with the replacement, when the launcher says so (launch/local/recovery.h). The trainer
// sees one transport whose connections change in between (rank_replacement.h).

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "core/rendezvous_point.h"
#include "launch/local/rank.h"
#include "launch/local/recovery.h"
#include "train/setup/job.h"
#include "transport/connection_breaker.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// Transport with new connections after each rank loss (launch/local/recovery.h), so that messages of different epochs
/// cannot mix.
class ReconnectingTransport final : public ForwardingTransport {
 public:
  /// `breaker` can break the connections. `is_first` is true until a rank is lost.
  using Connect = std::function<std::unique_ptr<Transport>(
      const RendezvousPoint& rendezvous, const std::shared_ptr<ConnectionBreaker>& breaker, bool is_first)>;

  /// Requires `rank.orders`.
  ReconnectingTransport(const RankEnvironment& rank, Connect connect);

  /// After the first epoch, waits for the launcher's order. Throws the errors of Connect.
  void join();
  [[nodiscard]] bool is_recovering() const { return link_.is_recovering(); }
  void note_resumed(std::int64_t step) const { link_.note_resumed(step); }

  /// Returns whether the loss of another rank caused `error`. May wait for the launcher.
  [[nodiscard]] bool must_leave(const std::exception& error, const std::string& op);
  /// Closes the connections; no transfer may be in progress here.
  void leave();

 private:
  RendezvousPoint first_rendezvous_;
  Connect connect_;
  std::shared_ptr<ConnectionBreaker> breaker_ = std::make_shared<ConnectionBreaker>();
  std::unique_ptr<Transport> connected_;
  RecoveryLink link_;  // Last member: its thread uses the breaker
};

/// Throws ConfigError if the job cannot use --recover twin.
void require_twins(const Job& job);

}  // namespace chimera
