#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

// Memory over time: a ledger of all allocations and releases that a timeline implies, added up per worker. explain()
// shows it; plans take its peaks.

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

}  // namespace chimera
