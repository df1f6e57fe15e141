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

// What Gloo and c10d write to standard error by themselves.

// Connections between the ranks that have messages for each other.

// What all ranks do together, over a tree of connections: few for each rank, and as many messages one after the other
// as the tree is deep.

// The process groups of one rank over Gloo, from meeting the other ranks to leaving them.

namespace chimera {

/// Keeps from standard error the lines in which Gloo and c10d log each attempt to connect that fails. They go to
/// std::cerr, Gloo's at a level that no setting turns off. An attempt that is repeated concerns nobody, and one that
/// fails for good is the error that join() throws; but where a rank died while others connected to it, those lines
/// would stand before the one that names it. For the rest of the process; all else passes.
void drop_connect_log();

/// Two process groups for each pair of ranks that talk, one for each direction. Where a sender is interrupted while it
/// holds a connection's lock, Gloo's thread tries that lock again and again, for as long as the kernel lets it, if
/// anything has arrived there. Here next to nothing does.
class MessageChannels {
 public:
  /// Makes the process group of the calling rank and `other`, the lower one first, under a name of its own.
  using Connect = std::function<GlooGroup(const std::string& name, int other)>;
  /// Connects `rank` with those it talks to.
  void connect(int rank, const std::vector<RankPair>& pairs, const Connect& connect);

  /// The group whose two ranks are these, which carries messages this way alone. Throws TransportError where the ranks
  /// are not among the pairs.
  [[nodiscard]] const GlooGroup& between(int from, int to) const;
  /// The place of `rank` in that of it and `other`.
  [[nodiscard]] static int place(int rank, int other) { return rank < other ? 0 : 1; }

  /// Lets go of all process groups.
  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;

 private:
  std::map<std::pair<int, int>, GlooGroup> groups_;  // [from, to]
};

/// The connections of one rank with its parent and children, who all call the same functions in the same order. They
/// throw TransportError where a message is lost or late, and what Gloo throws.
class RankTree {
 public:
  /// `breaker` ends its waits; null: nobody does.
  explicit RankTree(std::shared_ptr<ConnectionBreaker> breaker);
  /// Makes the process group of two ranks; of the calling one and `other`, the lower one first.
  using Connect = std::function<GlooGroup(int other)>;
  /// Connects with the parent, then with each child.
  void connect(int rank, int world_size, const Connect& connect);

  /// What every rank gives, [rank, ...]: all of one size and type.
  [[nodiscard]] at::Tensor gather(const at::Tensor& mine, std::chrono::milliseconds timeout) const;
  /// Sums over all ranks, in ascending order of ranks: the same bits on all of them.
  void sum(std::span<double> values, std::chrono::milliseconds timeout) const;
  /// Returns once all ranks have called it.
  void barrier(std::chrono::milliseconds timeout) const;

  /// Lets go of all process groups.
  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  void complete(const Works& works, std::chrono::milliseconds timeout) const;
  [[nodiscard]] at::Tensor collect(const at::Tensor& mine, std::chrono::milliseconds timeout) const;
  void hand_down(at::Tensor& message, std::chrono::milliseconds timeout) const;

  std::shared_ptr<ConnectionBreaker> breaker_;
  int world_size_ = 1;
  TreePlace place_;
  GlooGroup parent_;                 ///< null: the root
  std::vector<GlooGroup> children_;  ///< as place_.children
};

/// A rank is connected with its neighbours alone: those it exchanges messages with, its place in a tree of all ranks,
/// and the other members of its parameter groups, which have a process group each.
class GlooConnections {
 public:
  /// Opens the store. Throws TransportError where it cannot be opened.
  explicit GlooConnections(const GlooOptions& options);

  /// Connects with the other ranks, compares fingerprints and finds out whose memory can be mapped; returns once all
  /// have done so. Fault points: rendezvous, connected. Throws what Gloo throws, and what require_equal() throws.
  void join();
  /// Waits up to three seconds until all ranks leave. Returns whether they do.
  [[nodiscard]] bool leave_together() noexcept;
  /// Leaves everything open until the process ends, as Gloo cannot be stopped while operations are pending.
  void abandon() noexcept;
  /// After a failure, in a process that goes on: breaks all connections, and lets go of them. What is under way on them
  /// ends then, but for threads that wait for ever for the rest of a message.
  void close() noexcept;

  [[nodiscard]] const MessageChannels& channels() const { return channels_; }
  [[nodiscard]] const RankTree& tree() const { return tree_; }
  /// The process group of a parameter group; null where this rank is no member, or the only one.
  [[nodiscard]] const GlooGroup& group(ParameterGroupId id) const { return process_groups_[id.index()]; }
  /// Those of its sums that shared memory has a part in. `host` is null where Gloo sums alone: where members may not
  /// share memory, or are not as many on each of several hosts.
  [[nodiscard]] const SumGroups& sum_groups(ParameterGroupId id) const { return sum_groups_[id.index()]; }

 private:
  void connect_groups();
  void require_unbroken() const;
  /// `threads`: that collectives run on; sends and receives need none.
  [[nodiscard]] GlooGroup create(const std::string& name, int rank, std::size_t size, int threads);
  [[nodiscard]] GlooGroup create_pair(const std::string& name, int other);
  /// Lets go of all process groups.
  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;
  void compare(const Fingerprint& own);
  void find_shared_memory();
  [[nodiscard]] std::vector<std::vector<bool>> mapped_members();
  void connect_sums(std::size_t group, const std::vector<RankId>& hosts);

  GlooOptions options_;
  MeetingStore meeting_;
  std::shared_ptr<gloo::transport::Device> device_;  // one for all groups: one thread for all sockets
  RankTree tree_;
  MessageChannels channels_;
  std::vector<GlooGroup> process_groups_;  // by parameter group
  std::vector<SumGroups> sum_groups_;      // likewise
};

}  // namespace chimera
