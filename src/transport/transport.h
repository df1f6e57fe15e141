#pragma once

// The interface for communication between ranks: messages between stages, all-reduces of gradients, and sums of a few
// numbers. The executor (runtime/executor.h) calls it. Operations start without blocking and return a Pending object;
// its wait() blocks. There are three implementations: for threads of a process (threads/), processes over Gloo (gloo/),
// and GPUs over NCCL (pairs/).
//
//   executor -> start_send(), post_receive(), start_sum() -> Pending ... wait()

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "schedule/rank_layout.h"
#include "schedule/reduction_tree.h"
#include "transport/message.h"

namespace chimera {

/// A send, receive or collective that was started. It may be destroyed without wait() only after a failure.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns the received tensor, the buffer (sum, all-gather), or an undefined tensor (send). Throws TransportError;
  /// PeerLostError if another rank is the cause.
  virtual at::Tensor wait() = 0;
  /// Returns when the sender has sent the received message, by its clock (MessageTag::sent); 0 if the transport carries
  /// no tags.
  [[nodiscard]] virtual double sent() const { return 0; }
  /// Calls `done` at completion, on any thread, before wait() returns; never if the operation fails or completes only
  /// inside wait().
  virtual void call_when_done(std::function<void()> /*done*/) {}
};

/// Operation that was complete at its start: wait() returns `result` at once.
class Completed final : public Pending {
 public:
  explicit Completed(at::Tensor result) : result_(std::move(result)) {}
  at::Tensor wait() override { return result_; }

 private:
  at::Tensor result_;
};

/// A collective that adds the gradients of a parameter group: a stage, or the matrix that the first and the last stage
/// of a tied model share. Its members are the ranks that hold these parameters. All members pass the same `order` and
/// `counts`.
struct GradientSum {
  /// Flat and contiguous. Receives the sum. Without an `order`, it is also this member's input.
  at::Tensor gradients;
  /// With an `order`, this member's inputs, each of the size of `gradients`; may be overwritten.
  std::vector<at::Tensor> parts = {};
  /// Tree along which the parts of all members are added (schedule/reduction_tree.h), so that the bits do not depend on
  /// which member has which part. Must live until the wait. All members must wait for such sums in the same order.
  /// Null: the transport's own order, which is deterministic.
  const SumOrder* order = nullptr;
  /// [member]: consecutive elements that this member gets (reduce-scatter), all elements in total; its other elements
  /// become undefined. Empty: every member gets the whole sum (all-reduce).
  std::vector<std::int64_t> counts = {};

  [[nodiscard]] bool scatters() const { return !counts.empty(); }
  [[nodiscard]] const char* name() const { return scatters() ? "reduce-scatter" : "all-reduce"; }
};

/// Endpoint of a rank, for that rank's thread only. From one rank to another, messages arrive in the order of
/// start_send(), and receives must be posted in the same order. Only Pending::wait(), sum_in_op(), exchange_in_op(),
/// connect_sums(), confirm(), all_sum() and sum_to_host() block. All functions that communicate throw TransportError,
/// or PeerLostError if another rank is the cause.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Starts a send. `tensor` must be contiguous, and must not be modified afterwards.
  virtual std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) = 0;
  /// Starts to receive the next message from `from`. wait() returns the tensor, which must not be modified, or throws
  /// TransportError if the sender's tag differs.
  virtual std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) = 0;
  /// Starts the sum of a parameter group's gradients over the ranks that hold its weights (see GradientSum). The
  /// group's previous sum must have been waited for.
  virtual std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) = 0;
  /// Starts an in-place all-reduce of `gradients` in the transport's own order.
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) {
    return start_sum(group, {.gradients = std::move(gradients)});
  }
  /// Adds `values` (flat, contiguous) over the group's ranks in place, with the same bits on each, and blocks: for sums
  /// inside ops, of which a step has many. No other sum of the group may be in flight.
  virtual void sum_in_op(ParameterGroupId group, at::Tensor values) {
    start_all_reduce(group, std::move(values))->wait();
  }
  /// Returns [member]: the values (contiguous) of each member of the group, for reading until the next such call or
  /// sum_in_op(); blocks. Returns an empty vector if the transport has no memory that members share.
  virtual std::vector<at::Tensor> exchange_in_op(ParameterGroupId /*group*/, const at::Tensor& /*values*/) {
    return {};
  }
  /// Starts an in-place all-gather of `buffer` (flat, contiguous): the group's m-th rank owns `counts[m]` consecutive
  /// elements. All members pass the same counts, with a total of at most the buffer's size, and wait in one order.
  virtual std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                                    const std::vector<std::int64_t>& counts) = 0;
  /// Connects the ranks for later sums of tensors like `gradients`, if the transport's connections depend on the size.
  /// May overwrite `gradients`. `counts` are as in GradientSum. Blocks. All members call it in the same order before
  /// the first step.
  virtual void connect_sums(ParameterGroupId /*group*/, const at::Tensor& /*gradients*/,
                            const std::vector<std::int64_t>& /*counts*/) {}
  /// Makes timeouts longer than `longest`, the longest step so far. On a device, an operation may be started a step
  /// before it can run, and its timeout counts from the start.
  virtual void note_longest_step(std::chrono::milliseconds /*longest*/) {}
  /// Throws PeerLostError if the transport has noticed that a peer is lost. Does not block. For a host that waits for
  /// its device.
  virtual void require_peers() {}
  /// Throws PeerLostError unless all transfers and collectives of all ranks up to here are complete, with right data;
  /// blocks. All ranks call it before received data replaces what a rank would need after the loss of another rank. On
  /// CPUs the wait for an operation is enough.
  virtual void confirm() {}
  /// Sums `values` over all ranks in place, with the same bits on each; blocks. All ranks call it with equally many
  /// values, in the same order relative to other collectives.
  virtual void all_sum(std::span<double> values) = 0;
  /// Returns all_sum() of doubles on a device (flat, contiguous). Calls `before_wait`, if set, before it waits for the
  /// device.
  [[nodiscard]] virtual std::vector<double> sum_to_host(const at::Tensor& values,
                                                        const std::function<void()>& before_wait);
};

}  // namespace chimera
