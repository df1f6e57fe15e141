#pragma once
// Ranks as processes, over c10d's Gloo backend (TCP).

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/connection_breaker.h"
#include "transport/fingerprint.h"
#include "transport/neighbors.h"
#include "transport/transport.h"

namespace chimera {

/// A limit that outlasts all that ranks wait for. Gloo counts the time in which a job is stopped (Ctrl-Z, fg), and of a
/// hang it could only name a victim: the launcher, which does neither, finds who is to blame. In milliseconds this fits
/// into 31 bits.
inline constexpr std::chrono::milliseconds kGlooPatience = std::chrono::hours(24 * 20);

/// How a rank finds the others. Rank r is worker r.
struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  MeetingPoint meeting;  ///< the same for all ranks
  /// Limit of any wait. A wait that runs out breaks all connections of the rank: a last resort where no launcher finds
  /// hangs.
  std::chrono::milliseconds timeout = kGlooPatience;
  /// Limit of each step of finding and connecting the others.
  std::chrono::milliseconds start_up_timeout = std::chrono::minutes(1);
  RankGroups groups;
  /// Ranks that have messages for each other, the same list on all ranks; nothing: every rank may for every other. Such
  /// a pair costs two connections.
  std::optional<std::vector<RankPair>> pairs = std::nullopt;
  /// What all ranks must have in common; empty: nothing is compared.
  Fingerprint fingerprint = {};
  /// Sum gradients in memory that the members of a group on one host map, where they may.
  bool share_memory = true;
  /// [rank]: its host; ranks of two hosts do not try each other's memory. Empty: they find out.
  std::vector<int> hosts = {};
  /// For a rank that is to outlive the loss of others: breaks the connections of this transport, also while they are
  /// made, from another thread. Null: such a rank ends.
  std::shared_ptr<ConnectionBreaker> breaker = nullptr;
};

/// Where the ranks meet in a file, they listen on 127.0.0.1 alone, as ranks of one host. Else each listens at
/// own_address() (rendezvous/address.h) alone.
///
/// Calls leave_header_room(), so that messages need not be copies. Joins the other ranks; returns once all have joined.
/// Each direction between two ranks that have messages for each other, and each stage with several members, has a
/// process group of its own, so that none waits for another; together they use one thread for the sockets and one a
/// group of three and more. What all ranks do together goes over a tree. So a rank's sockets grow with its neighbours.
///
/// Sends do not complete before the receive is posted. Start functions, too, throw where a connection is already lost.
/// Stage gradients are summed in shared memory, in ascending order of workers; over several hosts with as many members
/// each, two or more, in two levels: so on every host, then each member's slice between the hosts, in Gloo's ring order
/// (ascending only for two); where memory cannot be shared or hosts differ, in Gloo's ring order of all members. In
/// each case deterministic, with the same bits on every member. all_sum adds in ascending order of workers, as
/// ThreadHub does.
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

/// Files that connect_gloo() opens on the rank that opens most: sockets to its neighbours, and a few for all of them.
/// Gloo's threads end the process where it may not have so many.
[[nodiscard]] std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups,
                                            const std::vector<RankPair>& pairs);

}  // namespace chimera
