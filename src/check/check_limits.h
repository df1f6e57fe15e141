#pragma once

#include <optional>
#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Bytes that a worker may hold, and what counts. A worker's whole share of the model stands for all stages that one
/// replica places on it; with S stages on D workers a stage counts D/S of a share.
struct MemoryLimit {
  double bytes = 0;             // that a worker may hold
  double weight_bytes = 0;      // of a share's weights, with gradients and optimizer state where they are to count
  double activation_bytes = 0;  // of a share's activations of one full micro-batch
};

struct Limits {
  /// Most activations a worker may hold, in stage units: a share's activations of one full micro-batch are 1.
  std::optional<double> in_flight = std::nullopt;
  std::optional<MemoryLimit> memory = std::nullopt;
};

/// Returns each worker's first op over a limit, the earliest of all workers first (ops of one unit of time, B of two).
/// An op's activations are held from its F until its B or W has ended. Weights count once for each stage of each
/// replica on the worker, and once more for each older weight version that an op still to come uses. Buffers of
/// messages do not count. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_limits(const Schedule& schedule, const Limits& limits);

/// Whether the gradients of each stage of each replica are accumulated in ascending micro-batch id: the order of the
/// samples, in which sums of floating-point numbers are the unpipelined model's. Returns the first op out of order at
/// each stage of each replica, as findings of the given severity. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_sample_order(const Schedule& schedule, Severity severity);

}  // namespace chimera
