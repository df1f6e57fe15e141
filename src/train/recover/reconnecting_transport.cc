#include "train/recover/reconnecting_transport.h"

#include <fmt/format.h>
#include <sstream>

#include "core/files.h"
#include "launch/local/failure_report.h"

namespace chimera {

ReconnectingTransport::ReconnectingTransport(const RankEnvironment& rank)
    : rank_(rank.rank),
      rendezvous_(rank.rendezvous),
      link_(rank.rank, rank.generation, FileDescriptor(*rank.orders), [breaker = breaker_] { breaker->break_all(); }) {}

const JoinedGeneration& ReconnectingTransport::await_generation() {
  note_progress({RankProgress::Phase::Joining});
  // The order to leave may come before this rank has connected for the first time.
  is_first_ = !is_recovering() && !link_.must_leave(std::chrono::milliseconds(0));
  if (is_first_) return generation_;
  resets_ = 0;
  generation_ = link_.rejoin([this] { breaker_->reset(); });
  // The launcher passes an open file without a name. The path of the descriptor gives it one, which c10d needs.
  const std::string store = fmt::format("/proc/self/fd/{}", generation_.store.get());
  if (rendezvous_.host.empty()) {
    rendezvous_ = file_rendezvous(store);
  } else {  // On several hosts, the file names the next server, which is in the first rank
    int first = 0;
    while (generation_.absent.test(static_cast<std::size_t>(first))) ++first;
    rendezvous_.listens = rank_ == first;
    std::istringstream(read_whole(store)) >> rendezvous_.host >> rendezvous_.port;
    rendezvous_.attempt.clear();  // reset() has set it on ranks of the last generation alone
  }
  note_progress({RankProgress::Phase::Joining});
  return generation_;
}

void ReconnectingTransport::join(const Connect& connect) {
  connected_ = connect(rendezvous_, breaker_, is_first_);
  forward_to(connected_.get());
}

void ReconnectingTransport::reset() {
  connected_.reset();  // Waits for the other ranks
  rendezvous_.attempt = fmt::format("again{}/", ++resets_);
}

bool ReconnectingTransport::must_leave(const std::exception& error, const std::string& op) {
  // A rank with an error of its own is the culprit unless the launcher says otherwise within the grace period. A rank
  // that has lost a peer is a victim, and waits for as long as the launcher needs.
  constexpr std::chrono::hours kForTheLauncher{24 * 365};  // Practically unlimited
  const bool has_lost_another = dynamic_cast<const PeerLostError*>(&error) != nullptr;
  if (has_lost_another && !link_.must_leave(std::chrono::milliseconds(0)))
    report_failure({.op = op, .message = error.what(), .own_cause = false});
  if (!link_.must_leave(has_lost_another ? kForTheLauncher : kVictimGrace)) return false;
  breaker_->break_all();  // A device must not wait for other ranks when the step is dropped
  return true;
}

void ReconnectingTransport::leave() {
  note_progress({RankProgress::Phase::Joining});
  connected_.reset();
}

}  // namespace chimera
