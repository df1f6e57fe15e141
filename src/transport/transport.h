#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/ids.h"
#include "schedule/rank_layout.h"
#include "schedule/reduction_tree.h"
#include "transport/message.h"

namespace chimera {

/// Transfer or collective in flight. It may be destroyed without wait() only after a failure.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns the received tensor, the buffer (sum, all-gather), or an undefined tensor (send). Throws TransportError;
  /// PeerLostError if another rank is the cause.
  virtual at::Tensor wait() = 0;
  /// Calls `done` at completion, on any thread, before wait() returns; never if the operation fails or completes only
  /// inside wait().
  virtual void call_when_done(std::function<void()> /*done*/) {}
};

/// Endpoint of a rank, for that rank's thread only. A channel is a directed pair of ranks: messages arrive in the order
/// of start_send(), and receives are posted in the same order. Only wait(), all_sum() and sum_to_host() block.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `tensor` is contiguous, and not modified afterwards.
  virtual std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) = 0;
  /// Posts the receive of the next message from `from`, a read-only tensor. wait() throws the error of throw_mismatch()
  /// if the sender's tag differs.
  virtual std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) = 0;
  /// Starts an in-place all-reduce of `gradients` (flat, contiguous) over the group. The group's previous sum must have
  /// been waited for.
  virtual std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) = 0;
  /// Starts an all-reduce of the members' `parts` into `gradients`. All members pass the same `order`, which must live
  /// until the wait. The bits do not depend on who holds which part. Parts may be overwritten. Members wait for such
  /// sums in one order.
  virtual std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId group, at::Tensor gradients,
                                                            std::vector<at::Tensor> parts, const SumOrder& order) = 0;
  /// Starts an in-place reduce-scatter of `gradients`: the group's m-th rank gets the sum of `counts[m]` consecutive
  /// elements, and its other elements become undefined. All members pass the same counts, with the size of `gradients`
  /// in total. If `order` is null, it follows the rules of start_all_reduce(), otherwise of start_ordered_all_reduce().
  /// The default implementation is an all-reduce.
  virtual std::unique_ptr<Pending> start_reduce_scatter(ParameterGroupId group, at::Tensor gradients,
                                                        std::vector<at::Tensor> parts, const SumOrder* order,
                                                        const std::vector<std::int64_t>& counts);
  /// Starts an in-place all-gather of `buffer` (flat, contiguous): the group's m-th rank owns `counts[m]` consecutive
  /// elements. All members pass the same counts, with a total of at most the buffer's size, and wait in one order.
  virtual std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                                    const std::vector<std::int64_t>& counts) = 0;
  /// Connects the sums of `gradients`, which may be overwritten, if the transport connects them by size. `counts` are
  /// as in start_reduce_scatter(); empty for an all-reduce. Blocks. All members call it in one order before the first
  /// step.
  virtual void connect_sums(ParameterGroupId /*group*/, const at::Tensor& /*gradients*/,
                            const std::vector<std::int64_t>& /*counts*/) {}
  /// Makes timeouts longer than steps. They count from the start of an operation, which on a device may be a step
  /// before its turn.
  virtual void note_longest_step(std::chrono::milliseconds /*longest*/) {}
  /// Sums `values` over all ranks in place, with the same bits on each; blocks.
  virtual void all_sum(std::span<double> values) = 0;
  /// Returns all_sum() of doubles on a device (flat, contiguous). Calls `before_wait`, if set, before it waits for the
  /// device.
  [[nodiscard]] virtual std::vector<double> sum_to_host(const at::Tensor& values,
                                                        const std::function<void()>& before_wait);
};

}  // namespace chimera
