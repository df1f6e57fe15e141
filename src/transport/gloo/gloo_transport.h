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

namespace gloo::transport {
class Device;
}

namespace chimera {

enum class OperationKind { Send, Receive, AllReduce, ReduceScatter, AllGather };

struct Operation {
  OperationKind kind;
  std::int64_t other;  // rank, or stage for collectives
};

[[nodiscard]] std::string to_text(int rank, const Operation& operation);

/// Throws PeerLostError or TransportError for a failed operation. The text of `error` decides, since Gloo uses one
/// type.
[[noreturn]] void rethrow_gloo(const std::string& operation, const std::exception& error);

/// In-place all-gather of unequal parts, which Gloo lacks. Starts at construction without blocking; throws Gloo's
/// errors.
class GlooAllGather {
 public:
  /// Member m owns `counts[m]` consecutive elements.
  GlooAllGather(const GlooGroup& group, const at::Tensor& buffer, const std::vector<std::int64_t>& counts,
                std::chrono::milliseconds timeout);
  void wait();

 private:
  std::chrono::milliseconds timeout_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

/// Ordered all-reduce or reduce-scatter (SliceExchange), one at a time per group. The group's thread adds the parts.
/// Starts at construction without blocking; throws Gloo's errors.
class GlooOrderedSum {
 public:
  /// `gradients` receives the sum; with `counts` only this member's elements.
  GlooOrderedSum(const GlooGroup& group, const at::Tensor& gradients, const std::vector<at::Tensor>& parts,
                 const SumOrder& order, std::chrono::milliseconds timeout, std::vector<std::int64_t> counts = {});
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the group's thread
};

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

/// Joins the other ranks over c10d's Gloo backend (TCP); returns once all have joined. Ranks with a rendezvous file
/// listen on 127.0.0.1, others at own_address(). Calls leave_header_room().
///
/// Sends complete only after the receive is posted. Start functions also throw if a connection is lost. Gradient sums
/// are deterministic, with the same bits on all members:
/// - one host: in shared memory, in ascending order of workers;
/// - several hosts with the same number of members, at least two: first on each host, then in Gloo's ring order;
/// - otherwise, or without shared memory: in Gloo's ring order of members.
/// A reduce-scatter adds in the same order on one host. Over several hosts it adds hosts in ascending order, or else
/// members as the leaves of a tree (SumOrder). all_sum() adds in ascending order of workers.
///
/// The destructor waits up to three seconds for the other ranks, so that no connection in use breaks. After a failure
/// it leaves everything open, or, with a breaker, breaks the connections and waits until no thread adds gradients, so
/// that the process can connect again. Every Pending must be destroyed before. SIGPIPE must be ignored.
///
/// Throws the errors of require_equal(), TransportError if ranks cannot be reached in time, and PeerLostError if a rank
/// is lost. Fault points: rendezvous, connected, sum.
[[nodiscard]] std::unique_ptr<Transport> connect_gloo(const GlooOptions& options);

/// Returns how many files connect_gloo() opens at most. Gloo ends the process beyond the system's limit.
[[nodiscard]] std::int64_t gloo_descriptors(std::int64_t world_size, const RankGroups& groups,
                                            const std::vector<RankPair>& pairs);

}  // namespace chimera
