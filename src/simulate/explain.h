#pragma once

// Why a timeline looks as it does: what each worker waits for while it is idle, which messages are on the way, how much
// memory is held, and which ops decide the makespan. Plans take the idle time by cause and the peaks of memory from it;
// pages and `chimera simulate` show it. Measured steps get the same explanation (explain_measured).

#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns the memory of each worker over time: in bytes if the costs give them, else in stage units (activations
/// only). It includes:
/// - weights (each version and copy), gradients and optimizer state;
/// - activations from F to the end of B or I, and the part for W until its end. With recomputation, only the boundary
///   is kept until B or I starts. Offloaded bytes are away between their copies (OffloadCopies).
/// - messages: on the sender until arrival, unless part of its activations; then on the receiver until the op starts
///   (forward) or ends (backward). CostModel::buffers extends both.
///
/// Requires all of the timeline's messages.
[[nodiscard]] std::vector<std::vector<MemoryPoint>> memory_over_time(const Schedule& schedule, const CostModel& costs,
                                                                     const Timeline& timeline,
                                                                     const std::vector<Message>& messages);

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
