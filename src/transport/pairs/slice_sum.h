#pragma once
// The ordered sum over the members of a c10d process group.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "schedule/reduction_tree.h"

namespace chimera {

/// Every member owns a slice of the buffer: it gets that slice of everyone's parts, adds them in order, and hands the
/// sum to all. As much travels as in a ring. Members start and finish such sums in one order.
class SliceSum {
 public:
  /// Starts the exchange. `gradients` will be the sum of the parts of all members; `order` is borrowed. A wait that
  /// lasts longer than `timeout` throws what the group throws; kNoTimeout: where the group works in streams, waits do
  /// not block the thread.
  SliceSum(c10::intrusive_ptr<c10d::Backend> group, at::Tensor gradients, const std::vector<at::Tensor>& parts,
           const SumOrder& order, std::chrono::milliseconds timeout = kNoTimeout);
  /// Waits for the others and returns `gradients`. False from c10d, an aborted exchange, is a TransportError.
  at::Tensor finish();

 private:
  [[nodiscard]] std::int64_t slice_size(std::int64_t member) const;
  [[nodiscard]] at::Tensor cut(const std::vector<at::Tensor>& parts) const;
  [[nodiscard]] std::vector<std::vector<at::Tensor>> arrived_slices() const;
  void gather(const at::Tensor& own_sum);

  c10::intrusive_ptr<c10d::Backend> group_;
  at::Tensor gradients_;
  const SumOrder& order_;
  std::chrono::milliseconds timeout_;
  std::int64_t members_;
  std::int64_t slice_;                  // elements
  std::vector<std::int64_t> received_;  // [member]: elements that come from it
  at::Tensor outgoing_;
  at::Tensor arrived_;
  c10::intrusive_ptr<c10d::Work> exchange_;
};

}  // namespace chimera
