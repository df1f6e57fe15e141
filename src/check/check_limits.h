#pragma once
// Checks that a valid schedule can fail: limits of memory (--max-in-flight, --memory), and the order in which gradients
// are summed. `chimera check` reports the violations of both. `simulate` rejects a schedule that exceeds a limit, and
// `sweep` leaves it out. The limits of `search` are in search/limits.h.

#include <optional>
#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Limit on the bytes of a worker. A *share* is all stages that one replica places on a worker: with S stages on D
/// workers, a stage is D/S of a share.
struct MemoryLimit {
  double bytes = 0;
  double weight_bytes = 0;      // Weights of a share; with gradients and optimizer state, if they are to count
  double activation_bytes = 0;  // Activations of a share for one full micro-batch
};

struct Limits {
  /// Limit on activations in stage units: one unit is a share's activations of a full micro-batch.
  std::optional<double> in_flight = std::nullopt;
  std::optional<MemoryLimit> memory = std::nullopt;
};

/// Returns, for each limit and worker, the first op that exceeds the limit, sorted by the op's start if every op takes
/// one unit of time (unit_start_times). Activations count from F to the end of B or W; each of k slices is 1/k of its
/// micro-batch. Weights count once per stage of a worker, and once per older version that a later op uses. Message
/// buffers do not count. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_limits(const Schedule& schedule, const Limits& limits);

/// Returns, for each stage of each replica, the first op that accumulates gradients out of ascending micro-batch order,
/// as a violation with `severity`. Training without a pipeline sums in ascending order, so another order gives slightly
/// different rounding. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_sample_order(const Schedule& schedule, Severity severity);

}  // namespace chimera
