#pragma once
// Ranks as processes, over c10d's Gloo backend (TCP).

#include <chrono>
#include <memory>
#include <string>

#include "core/meeting_point.h"
#include "transport/connection_breaker.h"
#include "transport/fingerprint.h"
#include "transport/transport.h"

namespace chimera {

/// How a rank finds the others. Rank r is worker r.
struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  MeetingPoint meeting;  ///< the same for all ranks
  /// Limit of any wait. A wait that runs out breaks all connections of the rank: a last resort, above hang detection.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Limit of each step of finding and connecting the others.
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(1);
  RankGroups groups;
  /// What all ranks must have in common; empty: nothing is compared.
  Fingerprint fingerprint = {};
  /// Sum gradients in memory that the members of a group map, where all of them run on one host and may.
  bool share_memory = true;
  /// For a rank that is to outlive the loss of others: breaks the connections of this transport, also while they are
  /// made, from another thread. Null: such a rank ends.
  std::shared_ptr<ConnectionBreaker> breaker = nullptr;
};

/// Where the ranks meet in a file, they listen on 127.0.0.1 alone, as ranks of one host. Else each listens at the one
/// address from which the meeting's host is reached, or at that of the interface that GLOO_SOCKET_IFNAME names.
///
/// Calls leave_header_room(), so that messages need not be copies. Joins the other ranks; returns once all have joined.
/// Messages to higher and to lower ranks, and each stage with several members, have a process group each, so that none
/// waits for another; together they use one thread for the sockets and one a group.
///
/// Sends do not complete before the receive is posted. Start functions, too, throw where a connection is already lost.
/// Stage gradients are summed in shared memory, in ascending order of workers, or where memory cannot be shared in
/// Gloo's ring order (ascending only for groups of two): deterministic, with the same bits on every member. all_sum
/// adds in ascending order of workers, as ThreadHub does.
///
/// At its end (no failure, no exception under way) the transport waits up to three seconds for the others, so that a
/// rank that is ready early breaks no connection in use. After a failure it leaves everything to the end of the
/// process, which should be soon, as Gloo cannot be stopped while operations are pending.
/// With a breaker it breaks what is left after a failure, and waits until no thread of this process adds gradients or
/// is going to: then it can connect anew. Whoever holds a Pending lets go of it before. SIGPIPE must be ignored.
///
/// Compares the fingerprints of all ranks before anything that depends on them; throws what require_equal() throws.
/// Throws TransportError where the others cannot be reached in time; PeerLostError where one is lost on the way.
/// Fault points: rendezvous, connected, sum. Blocks no signals. Prints nothing; Gloo writes lines of its own to stderr
/// only when joining fails.
[[nodiscard]] std::unique_ptr<Transport> connect_gloo(const GlooOptions& options);

/// Files that connect_gloo() opens on the rank that opens most: sockets to the other members of each process group, and
/// a few for all of them. Gloo's threads end the process where it may not have so many.
[[nodiscard]] std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups);

}  // namespace chimera
