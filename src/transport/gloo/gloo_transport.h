#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rendezvous_point.h"
#include "schedule/reduction_tree.h"
#include "transport/connection_breaker.h"
#include "transport/fingerprint.h"
#include "transport/gloo/group.h"
#include "transport/groups.h"
#include "transport/transport.h"

// Operations over Gloo, and why they failed, in words.

// Collectives of a Gloo group besides Gloo's own. Both start at construction, without blocking, and throw what Gloo
// throws.

// Ranks as processes, over c10d's Gloo backend (TCP).

namespace chimera {

enum class OperationKind { Send, Receive, AllReduce, AllGather };

struct Operation {
  OperationKind kind;
  std::int64_t other;  // the other rank, or the stage
};

/// `rank 1: receive from rank 0`.
[[nodiscard]] std::string to_text(int rank, const Operation& operation);

/// Throws the error for a failure of `operation` ("rank 1: receive from rank 0"). Gloo reports a broken connection and
/// a wait that ran out by the same type, and c10d wraps what happens while connecting: only the text tells them apart.
[[noreturn]] void rethrow_gloo(const std::string& operation, const std::exception& error);

/// An all-gather of unequal parts, in place: every owner sends its part of a buffer straight to every other member.
/// Nothing is copied, and all directions are under way at once, whatever the parts' sizes; Gloo's all-gather knows
/// equal ones only.
class GlooAllGather {
 public:
  /// Member m owns the `counts[m]` elements behind those of the members before it.
  GlooAllGather(const GlooGroup& group, const at::Tensor& buffer, const std::vector<std::int64_t>& counts,
                std::chrono::milliseconds timeout);
  void wait();

 private:
  std::chrono::milliseconds timeout_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

/// Adds the members' parts in one order (SliceExchange). The adding is done by the group's own thread as soon as the
/// parts are here: the caller need not wait for it to go on. One at a time in each group.
class GlooOrderedSum {
 public:
  /// `gradients` becomes the sum.
  GlooOrderedSum(const GlooGroup& group, const at::Tensor& gradients, const std::vector<at::Tensor>& parts,
                 const SumOrder& order, std::chrono::milliseconds timeout);
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the group's thread, which may outlive a failure
};

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
