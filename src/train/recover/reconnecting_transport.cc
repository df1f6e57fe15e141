#include "train/recover/reconnecting_transport.h"

#include <fmt/format.h>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "launch/local/failure_report.h"

namespace chimera {
namespace {

/// Practically unlimited.
constexpr std::chrono::hours kForTheLauncher{24 * 365};

[[noreturn]] void refuse(const std::string& why) { throw ConfigError("--recover twin: " + why); }

}  // namespace

void require_twins(const Job& job) {
  const TrainOptions& options = job.options;
  if (job.num_ranks() == 1 || options.transport == TransportKind::Threads) {
    refuse("needs a run of several processes; this run has one");
  }
  if (options.device != DeviceKind::Cpu) refuse("needs ranks on CPUs; use --recover restart");
  if (job.run.schedule.updates) {
    refuse(fmt::format("schedule {} is asynchronous, and its copies of a stage are not equal; use --recover restart",
                       job.run.schedule.name));
  }
  if (options.shard_optimizer) {
    refuse(
        "--shard-optimizer keeps one copy of the optimizer state, so the state of a lost rank is lost; leave out one "
        "of them");
  }
  if (options.observes()) {
    refuse("--trace, --op-times, --timeline and --report need ranks that run all steps; leave them out");
  }
  for (const auto& group : job.run.rank_groups()) {
    if (group.size() == 1) {
      refuse(
          fmt::format("no other rank has a copy of the stages of rank {}; use a bidirectional schedule such as "
                      "chimera, or --data-parallel 2",
                      group.front().value()));
    }
  }
}

ReconnectingTransport::ReconnectingTransport(const RankEnvironment& rank, Connect connect)
    : first_rendezvous_(rank.rendezvous),
      connect_(std::move(connect)),
      link_(rank.rank, rank.generation, FileDescriptor(*rank.orders), [breaker = breaker_] { breaker->break_all(); }) {}

void ReconnectingTransport::join() {
  note_progress({RankProgress::Phase::Joining});
  if (!is_recovering() && !link_.must_leave(std::chrono::milliseconds(0))) {
    connected_ = connect_(first_rendezvous_, breaker_, /*is_first=*/true);
  } else {
    const FileDescriptor store = link_.rejoin([this] { breaker_->reset(); });
    note_progress({RankProgress::Phase::Joining});
    connected_ = connect_(file_rendezvous(fmt::format("/proc/self/fd/{}", store.get())), breaker_, /*is_first=*/false);
  }
  forward_to(connected_.get());
}

bool ReconnectingTransport::must_leave(const std::exception& error, const std::string& op) {
  // A rank with an error of its own is the culprit unless the launcher says otherwise within the grace period. A rank
  // that has lost a peer is a victim, and waits for as long as the launcher needs.
  const bool has_lost_another = dynamic_cast<const PeerLostError*>(&error) != nullptr;
  if (!has_lost_another) return link_.must_leave(kVictimGrace);
  if (!link_.must_leave(std::chrono::milliseconds(0)))
    report_failure({.op = op, .message = error.what(), .own_cause = false});
  return link_.must_leave(kForTheLauncher);
}

void ReconnectingTransport::leave() {
  note_progress({RankProgress::Phase::Joining});
  breaker_->break_all();
  connected_.reset();
}

}  // namespace chimera
