#pragma once
// Collectives of a Gloo group besides Gloo's own. Both start at construction, without blocking, and throw what Gloo
// throws.

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/reduction_tree.h"
#include "transport/gloo/group.h"

namespace chimera {

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

}  // namespace chimera
