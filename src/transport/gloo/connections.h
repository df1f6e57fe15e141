#pragma once

#include <ATen/core/Tensor.h>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/gloo/gloo_transport.h"
#include "transport/gloo/group.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/gloo/shared_sum.h"
#include "transport/groups.h"

namespace chimera {

/// Removes log lines about failed connection attempts from std::cerr for good, since Gloo and c10d have no setting for
/// it.
void drop_connect_log();

/// Two process groups per pair of ranks, one per direction. In a shared group Gloo's thread would spin on the lock of a
/// preempted sender.
class MessageChannels {
 public:
  /// Creates the group of the calling rank and `other`, the lower rank first.
  using Connect = std::function<GlooGroup(const std::string& name, int other)>;
  void connect(int rank, const std::vector<RankPair>& pairs, const Connect& connect);

  /// Throws TransportError if there is none.
  [[nodiscard]] const GlooGroup& between(int from, int to) const;
  /// Returns this rank's position in its groups with `other`.
  [[nodiscard]] static int place(int rank, int other) { return rank < other ? 0 : 1; }

  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;

 private:
  std::map<std::pair<int, int>, GlooGroup> groups_;  // [from, to]
};

/// Collectives over a tree of connections, called by all ranks in the same order. They throw TransportError if a
/// message is lost or late, and Gloo's errors.
class RankTree {
 public:
  /// `breaker` (may be null) ends its waits.
  explicit RankTree(std::shared_ptr<ConnectionBreaker> breaker);
  using Connect = std::function<GlooGroup(int other)>;
  void connect(int rank, int world_size, const Connect& connect);

  /// Returns all ranks' tensors (same size and type), [rank, ...].
  [[nodiscard]] at::Tensor gather(const at::Tensor& mine, std::chrono::milliseconds timeout) const;
  /// Sums in ascending order of ranks; all ranks get the same bits.
  void sum(std::span<double> values, std::chrono::milliseconds timeout) const;
  void barrier(std::chrono::milliseconds timeout) const;

  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  void complete(const Works& works, std::chrono::milliseconds timeout) const;
  [[nodiscard]] at::Tensor collect(const at::Tensor& mine, std::chrono::milliseconds timeout) const;
  void broadcast_sum(at::Tensor& message, std::chrono::milliseconds timeout) const;

  std::shared_ptr<ConnectionBreaker> breaker_;
  int world_size_ = 1;
  TreePlace place_;
  GlooGroup parent_;                 ///< null for the root
  std::vector<GlooGroup> children_;  ///< as place_.children
};

class GlooConnections {
 public:
  /// Throws TransportError if the store cannot be opened.
  explicit GlooConnections(const GlooOptions& options);

  /// Connects with the other ranks and compares fingerprints; returns once all ranks have done so. Throws the errors of
  /// Gloo and require_equal(). Fault points: rendezvous, connected.
  void join();
  /// Waits up to three seconds for all ranks to leave; false if they did not.
  [[nodiscard]] bool leave_together() noexcept;
  /// Leaves everything open, since Gloo cannot be stopped with pending operations.
  void abandon() noexcept;
  /// Breaks and releases all connections after a failure, so that the process can continue.
  void close() noexcept;

  [[nodiscard]] const MessageChannels& channels() const { return channels_; }
  [[nodiscard]] const RankTree& tree() const { return tree_; }
  /// Returns null if this rank is not a member, or the only one.
  [[nodiscard]] const GlooGroup& group(ParameterGroupId id) const { return process_groups_[id.index()]; }
  /// `host` is null if members cannot share memory, or if several hosts have different numbers of members, or one each.
  [[nodiscard]] const SumGroups& sum_groups(ParameterGroupId id) const { return sum_groups_[id.index()]; }

 private:
  void connect_groups();
  void require_unbroken() const;
  /// `threads` serve collectives.
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
  MessageChannels channels_;
  std::vector<GlooGroup> process_groups_;  // by parameter group
  std::vector<SumGroups> sum_groups_;      // by parameter group
};

}  // namespace chimera
