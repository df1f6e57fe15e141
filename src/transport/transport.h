#pragma once

// How ranks communicate: messages between stages, sums of gradients, and sums of a few numbers. The executor calls a
// Transport and knows nothing else about other ranks. Operations start without blocking and return a Pending; only its
// wait() blocks. There are three implementations: threads of a process (threads/), processes over Gloo (gloo/), and
// GPUs over NCCL (pairs/).
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

/// Operation that was complete at its start: wait() returns `result` at once.
class Completed final : public Pending {
 public:
  explicit Completed(at::Tensor result) : result_(std::move(result)) {}
  at::Tensor wait() override { return result_; }

 private:
  at::Tensor result_;
};

/// A collective that adds the gradients of a parameter group. All members pass the same `order` and `counts`.
struct GradientSum {
  /// Flat and contiguous. Receives the sum; it is also what is added if there is no `order`.
  at::Tensor gradients;
  /// What is added if there is an `order`; may be overwritten.
  std::vector<at::Tensor> parts = {};
  /// Tree in which all members' parts are added, so that the bits do not depend on who holds which part. Must live
  /// until the wait. Members wait for such sums in one order. Null: the transport's own, deterministic order.
  const SumOrder* order = nullptr;
  /// [member]: consecutive elements that this member gets (reduce-scatter), all elements in total; its other elements
  /// become undefined. Empty: every member gets the whole sum (all-reduce).
  std::vector<std::int64_t> counts = {};

  [[nodiscard]] bool scatters() const { return !counts.empty(); }
  [[nodiscard]] const char* name() const { return scatters() ? "reduce-scatter" : "all-reduce"; }
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
  /// Starts the sum of a parameter group's gradients over the ranks that hold its weights (see GradientSum). The
  /// group's previous sum must have been waited for.
  virtual std::unique_ptr<Pending> start_sum(ParameterGroupId group, GradientSum sum) = 0;
  /// Starts an in-place all-reduce of `gradients` in the transport's own order.
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) {
    return start_sum(group, {.gradients = std::move(gradients)});
  }
  /// Starts an in-place all-gather of `buffer` (flat, contiguous): the group's m-th rank owns `counts[m]` consecutive
  /// elements. All members pass the same counts, with a total of at most the buffer's size, and wait in one order.
  virtual std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                                    const std::vector<std::int64_t>& counts) = 0;
  /// Connects the sums of `gradients`, which may be overwritten, if the transport connects them by size. `counts` are
  /// as in GradientSum. Blocks. All members call it in one order before the first
  /// step.
  virtual void connect_sums(ParameterGroupId /*group*/, const at::Tensor& /*gradients*/,
                            const std::vector<std::int64_t>& /*counts*/) {}
  /// Makes timeouts longer than steps. They count from the start of an operation, which on a device may be a step
  /// before its turn.
  virtual void note_longest_step(std::chrono::milliseconds /*longest*/) {}
  /// Throws PeerLostError if the transport has noticed that a peer is lost. Does not block. For a host that waits for
  /// its device.
  virtual void require_peers() {}
  /// Sums `values` over all ranks in place, with the same bits on each; blocks.
  virtual void all_sum(std::span<double> values) = 0;
  /// Returns all_sum() of doubles on a device (flat, contiguous). Calls `before_wait`, if set, before it waits for the
  /// device.
  [[nodiscard]] virtual std::vector<double> sum_to_host(const at::Tensor& values,
                                                        const std::function<void()>& before_wait);
};

}  // namespace chimera
