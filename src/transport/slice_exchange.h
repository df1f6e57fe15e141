#pragma once

// The first half of an ordered sum over any c10d backend: member m receives the m-th slice of every part, and adds the
// slices in order.

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport/transport.h"

namespace chimera {

/// Ordered reduce-scatter over any c10d process group. Each member receives its slice of all parts, and adds them in
/// order. The caller of an all-reduce gathers the slices. If members have one part each, it sends as many bytes as a
/// ring all-reduce. Members start and finish such sums in one order.
class SliceExchange {
 public:
  /// Starts the exchange of the parts, each of the size of the gradients. kNoTimeout is the group's timeout. In an
  /// all-reduce, slices are equal, except that the last ones may be shorter or empty.
  SliceExchange(c10d::Backend& group, const GradientSum& sum, std::chrono::milliseconds timeout = kNoTimeout);

  [[nodiscard]] c10d::Work& work() const { return *work_; }
  /// Returns the sum in this member's slice (may be empty). Call it once, after the work is done.
  [[nodiscard]] at::Tensor add();
  /// Elements per member, in consecutive slices.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const { return counts_; }
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

/// Returns the order for one part per member.
[[nodiscard]] SumOrder one_part_each(std::int64_t members);

}  // namespace chimera
