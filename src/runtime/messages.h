#pragma once

// Tensors between ops: hidden states from stage to stage, and gradients back. An op of this worker puts its result
// here. The op of the next stage takes it, or a send takes it for another worker. wait_receive() puts a tensor from
// another worker here, so an op takes its input in the same way wherever it was computed. Each tensor is taken once and
// then freed. In the picture, 1F0 is the forward of stage 1 for micro-batch 0.
//
//   forward 1F0 --put--> [1F0] --take--> forward 2F0           (both stages on this worker)
//                        [1F0] --start_send--> other worker --post_receive, wait_receive--> [1F0] --take--> 2F0
//
// A missing tensor, a second result of the same op, or a transfer that is awaited but not started, is an InternalError.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "runtime/tracer.h"
#include "runtime/worker_context.h"
#include "transport/transport.h"

namespace chimera {

/// Tensors and pending sends and receives of a worker, used only by the worker's own thread. An argument `maker` is the
/// op that makes the tensor. The executor calls the functions of transfers for the instructions of the same names; they
/// throw the errors of the transport.
class Messages {
 public:
  explicit Messages(const WorkerContext& worker) : worker_(worker) {}

  /// Keeps the result of `maker`.
  void put(const Op& maker, at::Tensor tensor);
  /// Removes and returns the result of `maker`.
  [[nodiscard]] at::Tensor take(const Op& maker);
  /// Takes the input gradient that the backward (B or I) of `stage` has computed for the micro-batch of `op`.
  [[nodiscard]] at::Tensor take_gradient(const Op& op, StageId stage);

  /// Starts a receive. `step` and `maker` are the tag of the message. Sends and receives are matched by their order;
  /// the tag detects a mismatch.
  void post_receive(const Op& maker, WorkerId from, std::int64_t step);
  /// Waits for the receive, and keeps its tensor for take().
  void wait_receive(const Op& maker);
  /// Takes the result of `maker`, and starts to send it.
  void start_send(const Op& maker, WorkerId to, std::int64_t step);
  /// Waits until the transport no longer needs the tensor that start_send() took.
  void wait_send(const Op& maker);

  /// Returns the times of received messages since the last call, by sender.
  [[nodiscard]] TransitTimes take_transit_times() { return std::exchange(transit_times_, {}); }

  /// Drops all tensors and transfers of an abandoned step.
  void drop();

 private:
  using Transfers = std::unordered_map<OpKey, std::unique_ptr<Pending>>;

  const WorkerContext& worker_;
  std::unordered_map<OpKey, at::Tensor> tensors_;
  Transfers sends_;
  std::unordered_map<OpKey, std::pair<RankId, std::unique_ptr<Pending>>> receives_;
  TransitTimes transit_times_;
};

}  // namespace chimera
