#pragma once
// The process groups of one rank over Gloo, from meeting the other ranks to leaving them.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/gloo/gloo_transport.h"
#include "transport/gloo/group.h"
#include "transport/gloo/message_channels.h"
#include "transport/gloo/rank_tree.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/gloo/shared_sum.h"

namespace chimera {

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
