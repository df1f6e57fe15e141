#pragma once

// Connects a rank with all others over Gloo, and takes the connections down again. It makes process groups of c10d
// (PyTorch's library of collectives): a tree of all ranks, two groups per pair of ranks that exchange messages (one per
// direction), and one per parameter group, whose ranks sum gradients. Members on one host also find out whether they
// can map each other's memory.
//
// Launchers and dry runs check the number of open files first (gloo_descriptors()), because Gloo ends the process if it
// reaches the system's limit.
//
//   await_all -> tree -> compare fingerprints -> message channels -> parameter groups -> shared memory -> barrier

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/connection_breaker.h"
#include "transport/fingerprint.h"
#include "transport/gloo/group.h"
#include "transport/gloo/rank_tree.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/gloo/shared_sum.h"
#include "transport/groups.h"

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

/// Removes log lines about failed connection attempts from std::cerr for good, since Gloo and c10d have no setting for
/// it.
void drop_connect_log();

/// Returns the index of `rank` in the process groups of `rank` and `other`: the lower rank has index 0.
[[nodiscard]] constexpr int index_in_pair(int rank, int other) { return rank < other ? 0 : 1; }

/// All connections of one rank, for its own thread. GlooTransport owns it.
class GlooConnections {
 public:
  /// Throws TransportError if the store cannot be opened.
  explicit GlooConnections(const GlooOptions& options);

  /// Connects with the other ranks and compares fingerprints; returns once all ranks have done so. Throws the errors of
  /// Gloo. If fingerprints differ, throws ConfigError or PeerLostError as require_equal() does. Tests inject faults
  /// (core/fault_point.h) at rendezvous and connected.
  void join();
  /// Waits up to three seconds until all ranks have called it; returns false if they have not.
  [[nodiscard]] bool leave_together() noexcept;
  /// Leaves everything open until the process ends, after a failure without a breaker: Gloo cannot be stopped with
  /// pending operations.
  void abandon() noexcept;
  /// Breaks and releases all connections after a failure, so that the process can continue. Requires
  /// GlooOptions::breaker.
  void close() noexcept;

  /// Returns the group for messages in one direction. This rank is `from` or `to`. Throws TransportError if the ranks
  /// exchange none.
  [[nodiscard]] c10d::ProcessGroupGloo& channel(int from, int to) const;
  [[nodiscard]] const RankTree& tree() const { return tree_; }
  /// Returns the process group of a parameter group; null if this rank is not a member, or the only member.
  [[nodiscard]] const GlooGroup& group(ParameterGroupId id) const { return process_groups_[id.index()]; }
  /// Returns the process groups for sums in shared memory (shared_sum.h). SumGroups::host is null if this is
  /// impossible: members on a host cannot map each other's memory, or the members are on several hosts with different
  /// numbers, or with one each.
  [[nodiscard]] const SumGroups& sum_groups(ParameterGroupId id) const { return sum_groups_[id.index()]; }

 private:
  void connect_groups();
  /// `threads` is the number of threads that run the group's collectives.
  [[nodiscard]] GlooGroup create(const std::string& name, int rank, std::size_t size, int threads);
  [[nodiscard]] GlooGroup create_pair(const std::string& name, int other);
  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;
  void compare(const Fingerprint& own);
  void find_shared_memory();
  [[nodiscard]] std::vector<std::vector<bool>> mapped_members();
  void connect_sums(std::size_t group, const std::vector<RankId>& hosts);

  GlooOptions options_;
  RendezvousStore rendezvous_;
  std::shared_ptr<gloo::transport::Device> device_;  // one thread serves all groups' sockets
  RankTree tree_;
  std::map<std::pair<int, int>, GlooGroup> channels_;  // [from, to]
  std::vector<GlooGroup> process_groups_;              // by parameter group
  std::vector<SumGroups> sum_groups_;                  // by parameter group
};

}  // namespace chimera
