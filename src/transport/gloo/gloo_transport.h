#pragma once

// The transport of rank processes on CPUs: messages over TCP by the Gloo backend of PyTorch's c10d, gradient sums in
// shared memory where possible. See transport.h for the contract, connections.h for the start, shared_sum.h for sums.
// This header also has the number of open files that the connections need. Launchers and dry runs check this number
// first, because Gloo ends the process if it reaches the system's limit of open files.

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
#include "transport/transport.h"

namespace gloo::transport {
class Device;
}

namespace chimera {

/// Default timeout of Gloo: 20 days, because the launcher detects hangs, and Gloo's timeouts continue to run while the
/// job is stopped (Ctrl-Z). It must fit in 31 bits of milliseconds.
inline constexpr std::chrono::milliseconds kGlooDefaultTimeout = std::chrono::hours(24 * 20);

/// Returns a Gloo device: a thread that handles the sockets of connections. They listen on `address` (empty:
/// 127.0.0.1). Throws TransportError if this host has no such address.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address = "");

/// Options of connect_gloo(), for one rank.
struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  RendezvousPoint rendezvous;
  /// Limit of each wait. A timeout breaks all connections of the rank.
  std::chrono::milliseconds timeout = kGlooDefaultTimeout;
  /// Limit of each step of rendezvous and connecting.
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(1);
  RankGroups groups;  ///< [parameter group]: ranks that sum its gradients
  /// Ranks that exchange messages, equal on all ranks; nothing: every pair.
  std::optional<std::vector<RankPair>> pairs = std::nullopt;
  /// Hashes of the settings that must be equal on all ranks, which compare them when they connect.
  Fingerprint fingerprint = {};
  /// Whether ranks of one host sum gradients in shared memory, if possible.
  bool share_memory = true;
  /// [rank]: number of its host. Ranks try to map each other's memory only on the same host; if empty, all ranks try.
  std::vector<int> hosts = {};
  /// With it, another thread can break the connections, also while this rank is still connecting, so that this rank
  /// does not have to end if another one is lost. May be null.
  std::shared_ptr<ConnectionBreaker> breaker = nullptr;
  /// Device of gloo_device(); null: the transport makes one. The thread of a device wakes up 100 times a second, so a
  /// process with many transports should share one.
  std::shared_ptr<gloo::transport::Device> device = nullptr;
};

/// Returns how many files connect_gloo() opens at most. Gloo ends the process beyond the system's limit.
[[nodiscard]] std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups,
                                            const std::vector<RankPair>& pairs);

/// Connects to the other ranks over c10d's Gloo backend (TCP), and returns once all ranks have connected. Ranks with a
/// rendezvous file listen on 127.0.0.1, others at own_address(). From then on, ATen reserves room for a message header
/// before each CPU tensor (leave_header_room()). The process must ignore SIGPIPE.
///
/// A send completes only after the peer has posted the receive. The functions that start an operation also throw if a
/// connection is lost.
///
/// Gradient sums are deterministic, with the same bits on all members. GradientSum::order sets the order of additions.
/// Without it, the order depends on the hosts of the members ("ascending" means by ascending rank):
///
///   members                                          all-reduce               reduce-scatter
///   on one host, in shared memory                    ascending                ascending
///   on several hosts, equally many (at least two)    ascending on each host,  ascending on each host,
///   on each, in shared memory                        then Gloo's ring         then by ascending host
///   all others                                       Gloo's ring              binary tree of members (SumOrder)
///
/// all_sum() adds in ascending order of ranks.
///
/// All Pending objects must be destroyed before the transport. The destructor waits up to three seconds for the other
/// ranks to finish, because it breaks the connections to them. After a failure it does not wait. It then leaves all
/// connections open, or, if GlooOptions::breaker is set, shuts them down and waits until no thread adds gradients, so
/// that the process can connect again.
///
/// All ranks compare GlooOptions::fingerprint; if ranks differ, throws the errors of require_equal()
/// (transport/fingerprint.h). Throws TransportError if ranks cannot be reached in time, and PeerLostError if a rank
/// is lost. Tests inject faults (core/fault_point.h) at rendezvous, connected and sum.
[[nodiscard]] std::unique_ptr<Transport> connect_gloo(const GlooOptions& options);

}  // namespace chimera
