#pragma once
// How tensors travel between ranks: one small interface, so that the runtime knows neither sockets nor threads.

#include <ATen/core/Tensor.h>

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

/// A transfer or collective under way. Destroying it without wait() is allowed only after a failure.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks until done. Returns what arrived (receive), the buffer (all-reduce, all-gather), or an undefined tensor
  /// (send). Throws TransportError; PeerLostError where the cause lies with another rank.
  virtual at::Tensor wait() = 0;
  /// Has `done` called once the operation has completed, on any thread, before wait() returns. An operation that
  /// completes only inside wait() never calls it, nor does one that fails.
  virtual void call_when_done(std::function<void()> /*done*/) {}
};

/// One rank's end. Used by that rank's thread alone. A channel is a directed pair of ranks: its messages arrive in the
/// order of start_send, and receives are posted in that same order. Nothing here blocks but wait() and all_sum().
class Transport {
 public:
  virtual ~Transport() = default;
  /// Starts sending `tensor` (contiguous; not written to afterwards) to another rank. `tag` says what it is.
  virtual std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) = 0;
  /// Posts the receive of the next message from `from`. The tensor that arrives is read-only. Its wait() throws
  /// throw_mismatch() where the sender's tag is another one.
  virtual std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) = 0;
  /// Starts the sum of `gradients` (flat, contiguous) in place over the members of the group, whose sum before has been
  /// waited for. (Sums of other groups may be under way.)
  virtual std::unique_ptr<Pending> start_all_reduce(ParameterGroupId group, at::Tensor gradients) = 0;
  /// Starts the sum of the `parts` that the members of the group hold, added in one order that all of them
  /// give: the same bits however the parts are spread. `gradients` becomes the sum; the parts are the transport's.
  /// `order` lives until the wait. Members wait for several such sums in one order.
  virtual std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId group, at::Tensor gradients,
                                                            std::vector<at::Tensor> parts, const SumOrder& order) = 0;
  /// Starts handing what each member of the group owns of `buffer` (flat, contiguous) to the others, in place: the
  /// group's m-th rank owns the `counts[m]` elements behind those of the ranks before it. All give the same
  /// counts, which add up to the buffer's elements at most. Members wait for several of them in one order.
  virtual std::unique_ptr<Pending> start_all_gather(ParameterGroupId group, at::Tensor buffer,
                                                    const std::vector<std::int64_t>& counts) = 0;
  /// Sums `values` over all ranks, in place; blocks. The same bits on every rank.
  virtual void all_sum(std::span<double> values) = 0;
  /// The same of doubles that lie on a device, flat and contiguous; returns the sums. On a device that works in streams
  /// it waits for all that made them, once, and calls `before_wait`, unless it is empty, when the device has been given
  /// all that is to be waited for.
  [[nodiscard]] virtual std::vector<double> sum_to_host(const at::Tensor& values,
                                                        const std::function<void()>& before_wait);
};

}  // namespace chimera
