#pragma once
// Two checks of schedules that are complete and can run (check_schedule.h): do they stay within limits of memory
// (--max-in-flight, --memory), and do they sum gradients in the order of the samples? `chimera check` reports the
// violations of both. `simulate` rejects a schedule that exceeds a limit, and `sweep` leaves it out. The limits of
// `search` are in search/instance.h.

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Limit on the bytes of a worker. A replica is a full copy of the model, and a *share* is all its stages on one
/// worker. With 8 stages on 4 workers, a share is two stages.
struct MemoryLimit {
  double bytes = 0;
  double weight_bytes = 0;      // Weights of a share; with gradients and optimizer state, if they are to count
  double activation_bytes = 0;  // Activations of a share for one full micro-batch
};

/// The limits to check; an empty one does not apply.
struct Limits {
  /// Limit on the activations of a worker. One unit (stage unit) is the activations of a full micro-batch in a share.
  std::optional<double> in_flight = std::nullopt;
  std::optional<MemoryLimit> memory = std::nullopt;
};

/// Returns, for each limit and worker, the first op that exceeds the limit, sorted by the ops' start if every op takes
/// one unit of time (unit_start_times()). Activations count from the forward to the end of the backward, or of the
/// weight gradient if the backward is split. If micro-batches run in k slices, each slice has 1/k of the activations.
/// A share's weights and activations are divided equally among its stages. The weights of each stage that a worker
/// holds count once. In an asynchronous schedule, each older version of the weights that a later op uses counts too.
/// Message buffers do not count. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_limits(const Schedule& schedule, const Limits& limits);

/// Returns, for each stage of each replica, the first op that accumulates gradients out of ascending micro-batch order,
/// as a violation. Training without a pipeline sums in ascending order, so another order gives slightly different
/// rounding. Requires a schedule that check() accepts.
[[nodiscard]] std::vector<Violation> check_sample_order(const Schedule& schedule);

}  // namespace chimera
