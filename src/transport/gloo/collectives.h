#pragma once

// Collectives over sockets that Gloo lacks, or whose results must be reproducible bit by bit; and the translation of
// Gloo's errors. GlooTransport uses them for sums of gradients if the ranks cannot share memory (shared_sum.h), and for
// all-gathers.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "transport/gloo/group.h"
#include "transport/transport.h"

namespace chimera {

/// Throws PeerLostError or TransportError for a failed operation. PeerLostError means that a connection broke. The text
/// of `error` decides, because all errors of Gloo have one type. `operation` is for the message.
[[noreturn]] void rethrow_gloo(const std::string& operation, const std::exception& error);

/// Starts an in-place all-gather of unequal parts, which Gloo lacks: member m owns `counts[m]` consecutive elements.
/// Returns the transfers to wait for. Throws Gloo's errors.
[[nodiscard]] Works start_gloo_all_gather(const GlooGroup& group, const at::Tensor& buffer,
                                          const std::vector<std::int64_t>& counts);

/// All-reduce or reduce-scatter in the order of GradientSum::order (SliceExchange), one at a time per group. The
/// group's thread adds the tensors. The constructor starts it without blocking, and wait() waits for its end; both
/// throw Gloo's errors.
class GlooOrderedSum {
 public:
  GlooOrderedSum(const GlooGroup& group, const GradientSum& sum, std::chrono::milliseconds timeout);
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the group's thread
};

}  // namespace chimera
