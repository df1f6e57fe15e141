#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/rendezvous_point.h"
#include "launch/local/rank.h"
#include "launch/local/recovery.h"
#include "train/loop/trainer.h"
#include "train/setup/job.h"
#include "transport/connection_breaker.h"
#include "transport/forwarding_transport.h"

// The connections of a rank whose job outlives the loss of others (launch/local/recovery.h).

// Training that goes on when ranks are lost.

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

/// Makes the trainer and trains all steps; when other ranks are lost it goes on with those that take their place. The
/// trainer's transport is `epochs`. `on_begin` is called whenever the trainer has weights and is about to go on,
/// `on_step` as Trainer::run() does, perhaps twice with the same step. Throws what the trainer throws, unless that came
/// of the loss of another rank.
RunSummary train_through_losses(const Job& job, RankId rank, Epochs& epochs, std::optional<Trainer>& trainer,
                                const std::function<void()>& on_begin,
                                const std::function<void(const StepMetrics&)>& on_step);

}  // namespace chimera
