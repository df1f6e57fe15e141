#pragma once
// What all ranks do together, over a tree of connections: few for each rank, and as many messages one after the other
// as the tree is deep.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/gloo/group.h"
#include "transport/neighbors.h"

namespace chimera {

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

}  // namespace chimera
