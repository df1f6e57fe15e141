#pragma once

// Collectives over Gloo groups that Gloo lacks or that must have reproducible bits, and the translation of Gloo's
// errors.

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

enum class OperationKind { Send, Receive, AllReduce, ReduceScatter, AllGather };

struct Operation {
  OperationKind kind;
  std::int64_t other;  // rank, or stage for collectives
};

[[nodiscard]] std::string to_text(int rank, const Operation& operation);

/// Throws PeerLostError or TransportError for a failed operation. The text of `error` decides, since Gloo uses one
/// type.
[[noreturn]] void rethrow_gloo(const std::string& operation, const std::exception& error);

/// In-place all-gather of unequal parts, which Gloo lacks. Starts at construction without blocking; throws Gloo's
/// errors.
class GlooAllGather {
 public:
  /// Member m owns `counts[m]` consecutive elements.
  GlooAllGather(const GlooGroup& group, const at::Tensor& buffer, const std::vector<std::int64_t>& counts,
                std::chrono::milliseconds timeout);
  void wait();

 private:
  std::chrono::milliseconds timeout_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

/// Ordered all-reduce or reduce-scatter (SliceExchange), one at a time per group. The group's thread adds the parts.
/// Starts at construction without blocking; throws Gloo's errors.
class GlooOrderedSum {
 public:
  GlooOrderedSum(const GlooGroup& group, const GradientSum& sum, std::chrono::milliseconds timeout);
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the group's thread
};

}  // namespace chimera
