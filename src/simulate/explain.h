#pragma once

// Derives from a timeline why it looks as it does: what each worker waits for while it is idle (*bubbles*), which
// messages are in transit, how much memory is held, and which ops determine the makespan. The planner uses the idle
// time by cause and the peaks of memory; pages and `chimera simulate` show everything. Measured steps get the same
// explanation (explain_measured()).

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// Returns [worker]: its memory over time. It is in bytes if CostModel::memory is set; else it counts only activations,
/// in stage units: one is a full micro-batch on 1/D of the layers, for D workers. It includes:
/// - weights (all versions; a stage counts once, even for several replicas), gradients and optimizer state;
/// - activations from the forward to the end of the backward (B, or I if it is split), and the part that the weight
///   gradient (W) needs until its end. With recomputation, only the input of the stage is kept until the backward
///   starts. Offloaded activations do not count between their two copies.
/// - messages: on the sender until arrival, unless the tensor is part of its activations; on the receiver from arrival
///   to the start of the op that needs it (forward) or to the op's end (backward). CostModel::buffers extends both
///   times.
///
/// `messages` must be all messages of the timeline.
[[nodiscard]] std::vector<std::vector<MemoryPoint>> memory_over_time(const Schedule& schedule, const CostModel& costs,
                                                                     const Timeline& timeline,
                                                                     const std::vector<Message>& messages);

/// Explains a timeline that simulate() has computed for the same schedule and costs.
///
/// *Bubbles* cover a worker's idle time without gap or overlap. The idle time before an op is divided by cause, in this
/// order:
/// - Latency: the worker waits until a message that it sent has arrived (CostModel::blocking_sends).
/// - Sync: the worker's all-reduces and its update at the end of a step. Other waiting before the update is Imbalance
///   while any worker has ops left, then Sync.
/// - WarmUp (first op of a synchronous step, or of the run) or Dependency: until the last input of the op is computed.
/// - Latency: until this input arrives.
/// - WarmUp or Dependency again, if the op starts even later: a forward that is delayed on purpose, or a backward that
///   waits for offloaded activations.
///
/// The idle time after a worker's last op is Imbalance while other workers run ops, then Sync.
///
/// *Memory* is the result of memory_over_time().
///
/// *The critical path* is found backward from the last event of the timeline. An op's predecessor is the previous op of
/// its worker if it started right after that op, else the op that made its last input. An update's predecessor is the
/// op that launched the all-reduce that ended last before it, or else the worker's op before the update.
///
/// Throws ConfigError if a cost is invalid (see CostTable).
[[nodiscard]] Explanation explain(const Schedule& schedule, const CostModel& costs, const Timeline& timeline);

/// Explains one measured synchronous step. All times must be on the clock of the same rank. Unlike in explain(), idle
/// time after the arrival of an op's last input is Latency, because handling a message takes time. Memory is in stage
/// units. The critical path is empty.
[[nodiscard]] Explanation explain_measured(const Schedule& schedule, const Timeline& timeline,
                                           std::vector<Message> messages);

}  // namespace chimera
