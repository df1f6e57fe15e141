#pragma once
// The connections of a rank whose job outlives the loss of others (launch/local/recovery.h).

#include <functional>
#include <memory>

#include "core/rendezvous_point.h"
#include "launch/local/rank.h"
#include "launch/local/recovery_link.h"
#include "train/setup/job.h"
#include "transport/connection_breaker.h"
#include "transport/forwarding_transport.h"

namespace chimera {

/// What ranks of one epoch send to each other; those of the next have other connections, so that no message of one is
/// ever taken for one of another.
class Epochs final : public ForwardingTransport {
 public:
  /// Joins the others at a place; `breaker` is to break the connections. `is_first`: the job begins, with no rank lost.
  using Connect = std::function<std::unique_ptr<Transport>(
      const MeetingPoint& meeting, const std::shared_ptr<ConnectionBreaker>& breaker, bool is_first)>;

  /// `rank` has orders.
  Epochs(const RankEnvironment& rank, Connect connect);

  /// Connects with the others: in the first epoch at once, else when the launcher says that all can. Throws what
  /// Connect throws.
  void join();
  /// Whether ranks have been lost since the job began.
  [[nodiscard]] bool is_recovering() const { return link_.is_recovering(); }
  /// Tells the launcher that this rank goes on after that step.
  void note_resumed(std::int64_t step) const { link_.note_resumed(step); }

  /// After an exception: whether it came of the loss of another rank, so that this one is to go on in the next epoch.
  [[nodiscard]] bool must_leave(const std::exception& error, const std::string& op);
  /// Then, once nothing is under way here: closes the connections.
  void leave();

 private:
  MeetingPoint first_meeting_;
  Connect connect_;
  std::shared_ptr<ConnectionBreaker> breaker_ = std::make_shared<ConnectionBreaker>();
  std::unique_ptr<Transport> connected_;
  RecoveryLink link_;  // last: its thread uses the breaker
};

/// Throws ConfigError where a job cannot go on without a rank in any case: --recover twin.
void require_twins(const Job& job);

}  // namespace chimera
