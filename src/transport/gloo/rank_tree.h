#pragma once

// Small collectives of all ranks over a tree, and the channels of messages. A full mesh of n ranks needs n^2 sockets, a
// tree needs n - 1.

#include <ATen/core/Tensor.h>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/gloo/group.h"
#include "transport/groups.h"

namespace chimera {

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

}  // namespace chimera
