#pragma once

#include <optional>
#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// A limit of bytes on a worker. A *share* is all stages that one replica places on a worker: with S stages on D
/// workers, a stage is D/S of a share.
struct MemoryLimit {
  double bytes = 0;             // limit
  double weight_bytes = 0;      // of a share's weights, with gradients and optimizer state if they count
  double activation_bytes = 0;  // of a share's activations for one full micro-batch
};

struct Limits {
  /// In stage units: a share's activations of a full micro-batch.
  std::optional<double> in_flight = std::nullopt;
  std::optional<MemoryLimit> memory = std::nullopt;
};

/// Returns each worker's first op over a limit, in order of start (unit_start_times). Activations count from F to the
/// end of B or W, weights once per stage of each replica, and once per older version that a later op uses. Message
/// buffers do not count. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_limits(const Schedule& schedule, const Limits& limits);

/// Returns the first op of each stage of each replica that accumulates gradients out of ascending micro-batch order
/// (the order of the unpipelined model), with this severity. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_sample_order(const Schedule& schedule, Severity severity);

}  // namespace chimera
