#pragma once

// A reduce-scatter in a fixed order of additions, over any backend of PyTorch's c10d; also the first half of an
// all-reduce. The Gloo and NCCL transports use it if a sum has an order (--reduction canonical), which no backend
// offers. Every member of the group has tensors to add, the *parts* (GradientSum::parts). Their elements are divided
// among the members into consecutive *slices*. Each member receives its slice of all parts, and adds these in the order
// of GradientSum::order.

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport/transport.h"

namespace chimera {

/// One reduce-scatter. For an all-reduce, the caller then all-gathers the slices. If each member has one part, both
/// together send as many bytes as a ring all-reduce. All members must start and finish such sums in the same order.
class SliceExchange {
 public:
  /// Starts the exchange of the parts, each of the size of the gradients. `sum` must have an order. kNoTimeout selects
  /// the group's own timeout. In an all-reduce, slices are equal, except that the last ones may be shorter or empty; in
  /// a reduce-scatter, GradientSum::counts gives them. Throws the errors of the backend.
  SliceExchange(c10d::Backend& group, const GradientSum& sum, std::chrono::milliseconds timeout = kNoTimeout);

  [[nodiscard]] c10d::Work& work() const { return *work_; }
  /// Returns the sum in this member's slice (may be empty). Call it once, after the work is done.
  [[nodiscard]] at::Tensor add();
  /// Returns the number of elements of each member's slice. The slices are consecutive.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const { return counts_; }
  /// Returns a view of this member's slice of `gradients`, a tensor with all elements.
  [[nodiscard]] at::Tensor own_slice(const at::Tensor& gradients) const {
    return gradients.narrow(0, own_first_, own_count_);
  }

 private:
  SumOrder order_;
  std::vector<std::int64_t> counts_;
  std::int64_t own_first_;
  std::int64_t own_count_;
  at::Tensor outgoing_;  // [member][part][slice], flat
  at::Tensor arrived_;   // [member][part][own slice], flat
  c10::intrusive_ptr<c10d::Work> work_;
};

/// Returns the order of a sum in which each member has one part: by ascending member. Reduce-scatters that need no
/// order use it. (With --reduction canonical, members have several parts.)
[[nodiscard]] SumOrder one_part_each(std::int64_t members);

}  // namespace chimera
