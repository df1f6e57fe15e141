#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "schedule/reduction_tree.h"

namespace chimera {

/// First half of an ordered all-reduce over any c10d process group. Each member owns a slice, receives this slice of
/// all parts, and adds them in order; the caller gathers the slices. In all it sends as many bytes as a ring
/// all-reduce, or more with several parts per member. Members start and finish such sums in one order.
class SliceExchange {
 public:
  /// Starts the exchange of `parts`, each of the size of `gradients`. A wait longer than `timeout` throws the group's
  /// error; kNoTimeout: the group's timeout.
  SliceExchange(c10d::Backend& group, const at::Tensor& gradients, const std::vector<at::Tensor>& parts,
                const SumOrder& order, std::chrono::milliseconds timeout = kNoTimeout);

  [[nodiscard]] c10d::Work& work() const { return *work_; }
  /// Returns the sum of all parts in this member's slice (may be empty). Call it once, after the work is done.
  [[nodiscard]] at::Tensor add();
  /// Elements per member, in consecutive slices of equal size; the last may have fewer or none.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  SumOrder order_;
  std::vector<std::int64_t> counts_;
  std::int64_t own_count_;
  at::Tensor outgoing_;  // [member][part][slice], flat
  at::Tensor arrived_;   // [member][part][own slice], flat
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace chimera
