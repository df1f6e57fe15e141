#pragma once

// Options of the Gloo transport, and the resources that its connections need. They are apart from gloo_transport.h so
// that connections.h, which the transport uses, can have them. Launchers and dry runs compute from them how many files
// a rank opens, since Gloo ends the process at the system's limit.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/connection_breaker.h"
#include "transport/fingerprint.h"
#include "transport/groups.h"

namespace gloo::transport {
class Device;
}

namespace chimera {

/// Practically infinite, within 31 bits of milliseconds: Gloo's timeouts run on while the job is stopped (Ctrl-Z),
/// and the launcher detects hangs.
inline constexpr std::chrono::milliseconds kGlooDefaultTimeout = std::chrono::hours(24 * 20);

/// A thread for the sockets of connections that listen on `address` (empty: 127.0.0.1). Throws TransportError if this
/// host has no such address.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address = "");

/// Options of connect_gloo(). Rank r is worker r.
struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  RendezvousPoint rendezvous;
  /// Limit of each wait. A timeout breaks all connections of the rank.
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  /// Limit of each step of rendezvous and connecting.
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(1);
  RankGroups groups;
  /// Ranks that exchange messages, equal on all ranks; nothing: every pair.
  std::optional<std::vector<RankPair>> pairs = std::nullopt;
  Fingerprint fingerprint = {};
  /// Sums gradients in shared memory on each host, if possible.
  bool share_memory = true;
  /// [rank]: host; ranks try to map each other's memory only on the same host (empty: on all).
  std::vector<int> hosts = {};
  /// Lets another thread break the connections, even while joining, so that the rank survives the loss of peers. May be
  /// null.
  std::shared_ptr<ConnectionBreaker> breaker = nullptr;
  /// Null: an own one. A device's thread wakes up 100 times a second, so a process with many connections shares one.
  std::shared_ptr<gloo::transport::Device> device = nullptr;
};

/// Returns how many files connect_gloo() opens at most. Gloo ends the process beyond the system's limit.
[[nodiscard]] std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups,
                                            const std::vector<RankPair>& pairs);

}  // namespace chimera
