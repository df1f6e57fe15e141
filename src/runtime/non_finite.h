#pragma once
// Infinities and NaNs: which op made the first. Looking is cheap; who is to blame is asked only once a loss or norm
// shows that something is wrong.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "schedule/op.h"

namespace chimera {

/// Whether all elements are finite numbers. One pass over memory that is still in the cache. Tensors of another device
/// count as finite: a look would wait for the device.
[[nodiscard]] bool all_finite(const at::Tensor& tensor);

/// Makes the first element a NaN, behind the back of autograd: for fault points.
void spoil(const at::Tensor& tensor);

/// The ops of one worker whose result was not finite.
class NonFiniteOps {
 public:
  /// `result`: what the op hands on, its output or the gradient of its input.
  void look(const Op& op, const at::Tensor& result) {
    if (!all_finite(result)) ops_.push_back(op);
  }
  /// Returns the ops of micro-batches before `end`, and forgets them.
  [[nodiscard]] std::vector<Op> take_before(MicroBatchId end) {
    std::vector<Op> taken;
    std::erase_if(ops_, [&](const Op& op) {
      if (op.micro_batch.value() < end.value()) taken.push_back(op);
      return op.micro_batch.value() < end.value();
    });
    return taken;
  }

  void forget() { ops_.clear(); }

 private:
  std::vector<Op> ops_;
};

/// Every (direction, group, micro-batch, stage) of a step as a place in a list of numbers, in the order in which a NaN
/// spreads: forwards before backwards, of a micro-batch's forwards the first stage first, of its backwards the last.
class SpreadOrder {
 public:
  SpreadOrder(std::int64_t groups, std::int64_t micro_batches, std::int64_t stages)
      : groups_(groups), micro_batches_(micro_batches), stages_(stages) {}

  struct Place {
    GroupId group;
    Op op;  ///< its kind is Forward or Backward, its replica is not known
  };
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(2 * groups_ * micro_batches_ * stages_); }
  [[nodiscard]] std::size_t index(GroupId group, const Op& op) const;
  [[nodiscard]] Place place(std::size_t index) const;

 private:
  std::int64_t groups_;
  std::int64_t micro_batches_;
  std::int64_t stages_;
};

/// "the output of stage 1 for micro-batch 3", or of the last stage "the loss of micro-batch 3 (stage 3)", or "the
/// gradient that stage 1 passes back for micro-batch 3".
[[nodiscard]] std::string describe_result(const Op& op, std::int64_t stages);

}  // namespace chimera
