#pragma once
// The ordered sum over the members of a c10d process group, whatever its backend.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "schedule/reduction_tree.h"

namespace chimera {

/// Every member owns a slice of the buffer: the exchange brings it that slice of everyone's parts, and it adds them in
/// order. Handing the sum to the others is then left to the backend. As much travels as in a ring all-reduce, and more
/// where members have several parts. Members start and finish such sums in one order.
class SliceExchange {
 public:
  /// Starts the exchange of the parts, each of the size of `gradients`. A wait that lasts longer than `timeout` throws
  /// what the group throws; kNoTimeout: the group's own.
  SliceExchange(c10d::Backend& group, const at::Tensor& gradients, const std::vector<at::Tensor>& parts,
                const SumOrder& order, std::chrono::milliseconds timeout = kNoTimeout);

  /// The exchange under way.
  [[nodiscard]] c10d::Work& work() const { return *work_; }
  /// The sum of all parts in this member's slice (empty where that is). To be called once, when the work is done.
  [[nodiscard]] at::Tensor add();
  /// [member] elements of the buffer that it owns, slice behind slice: equal numbers, the last ones fewer or none.
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
