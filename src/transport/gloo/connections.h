#pragma once

// Connects a rank with all others over Gloo, and takes the connections down again. It makes process groups of c10d
// (PyTorch's library of collectives): a tree of all ranks, two groups per pair of ranks that exchange messages (one per
// direction), and one per parameter group, whose ranks sum gradients. Members on one host also find out whether they
// can map each other's memory.
//
//   await_all -> tree -> compare fingerprints -> message channels -> parameter groups -> shared memory -> barrier

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/gloo/gloo_transport.h"
#include "transport/gloo/group.h"
#include "transport/gloo/rank_tree.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/gloo/shared_sum.h"
#include "transport/groups.h"

namespace chimera {

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
