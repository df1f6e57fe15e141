#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "simulate/memory.h"

namespace chimera {

/// Explains a timeline of simulate() for the same schedule and costs.
///
/// *Bubbles* tile a worker's idle time without gap or overlap. Before an op, they have these causes, in this order:
/// - Latency: the worker waits for its blocking send;
/// - Sync: own all-reduces and the update at the end of a step. Other waiting before the update is Imbalance while any
///   worker has ops left, then Sync.
/// - until the last input is computed, WarmUp for the first op of a synchronous step or run, else Dependency;
/// - Latency until that input arrives;
/// - WarmUp or Dependency again if the op starts even later, as a just-in-time forward does, or a backward that
///   waits for offloaded activations.
///
/// After the last op, they are Imbalance while other workers run ops, otherwise Sync.
///
/// *Memory* is that of memory_over_time().
///
/// *The critical path* leads back from the last end: from an op to the previous op of its worker or its last input,
/// whichever it started right after, and from an update to the op that launched the last all-reduce.
///
/// Throws ConfigError as CostTable does.
[[nodiscard]] Explanation explain(const Schedule& schedule, const CostModel& costs, const Timeline& timeline);

/// Explains one measured synchronous step with its messages, on one clock. Unlike in explain(), an op that starts after
/// its last input arrived waits for Latency, because handling messages takes time. Memory is in stage units. The
/// critical path is empty.
[[nodiscard]] Explanation explain_measured(const Schedule& schedule, const Timeline& timeline,
                                           std::vector<Message> messages);

}  // namespace chimera
