#pragma once

// Small collectives of all ranks: barriers, sums of a few numbers, and the gathering of a row per rank. They run over a
// tree of connections, because a full mesh of n ranks needs n^2 sockets and a tree needs n - 1. GlooConnections
// connects it first, compares the ranks' settings over it, and the transport's all_sum() uses it in every step.
//
//   collect: children send their rows to the parent, up to rank 0; broadcast: the result goes down again

#include <ATen/core/Tensor.h>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/gloo/group.h"
#include "transport/groups.h"

namespace chimera {

/// Collectives over a tree of connections, called by all ranks in the same order. They throw Gloo's errors if a message
/// is lost or late (rethrow_gloo() in collectives.h translates them).
class RankTree {
 public:
  /// `breaker` (may be null) can end the waits of these functions, after a rank was lost.
  explicit RankTree(std::shared_ptr<ConnectionBreaker> breaker);
  /// Function that connects this rank with `other` and returns a process group of both.
  using Connect = std::function<GlooGroup(int other)>;
  /// Connects this rank with its parent and its children. Call it before the other functions.
  void connect(int rank, int world_size, const Connect& connect);

  /// Returns all ranks' tensors (same size and type), [rank, ...], on every rank.
  [[nodiscard]] at::Tensor gather(const at::Tensor& mine, std::chrono::milliseconds timeout) const;
  /// Sums in ascending order of ranks; all ranks get the same bits.
  void sum(std::span<double> values, std::chrono::milliseconds timeout) const;
  void barrier(std::chrono::milliseconds timeout) const;

  /// Moves the connections out, so that GlooConnections can close all of a rank's connections together. Then only the
  /// destructor may be called.
  [[nodiscard]] std::vector<GlooGroup> take_groups() noexcept;

 private:
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
