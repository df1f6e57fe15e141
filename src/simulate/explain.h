#pragma once
// Why a timeline is as it is: what every worker waits for, what is on its way, what is in memory, what decides.

#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

namespace chimera {

/// Explains what simulate() or simulate_steps() found for the same schedule and costs.
///
/// *Bubbles* tile the time in which a worker runs no op, without gap or overlap, so that the causes add up to its idle
/// time. Before an op: its sender's wait for a blocking send (Latency), then the all-reduces and the update at the end
/// of a step (Sync; Imbalance while none of its own runs, as others' ops are to come), then, until the last of its
/// inputs is made, WarmUp for the first op of a synchronous step (or of the run) and Dependency for the others, then
/// Latency until that input has arrived; an op that is held back longer waits for the first cause again, as a forward
/// just in time does. After the last op: Imbalance while other workers run ops, except for its own all-reduces and
/// update, then Sync.
///
/// *Memory* is in bytes where the costs say them: weights (each version and copy held), gradients and optimizer state
/// all the time; activations from the forward's start to the end of its B or I, and what W needs of them to its end
/// (with recomputation the boundary until B or I starts, then the activations); of a message, its bytes on the sender
/// until it has arrived, unless they are among its activations, and from then on the receiver until its op starts
/// (forward) or ends (backward), both longer where CostModel::buffers says so. Otherwise it is in stage units:
/// activations only.
///
/// *The critical path* goes back from what ends last, always to what the op began right after: its worker's op before,
/// or the input that arrived last; an update after the op that launched the last all-reduce.
///
/// Linear in the ops, but for sorting what happens to memory. Throws ConfigError as CostTable does.
[[nodiscard]] Explanation explain(const Schedule& schedule, const CostModel& costs, const Timeline& timeline);

/// Explains what a real run measured: one synchronous step, its timeline and when its messages were sent and arrived,
/// on one clock. Bubbles have the same causes, except that an op that starts later than its last input arrived waits
/// for Latency: handling messages takes its time too. Memory is in stage units. No critical path: measured times do not
/// meet exactly.
[[nodiscard]] Explanation explain_measured(const Schedule& schedule, const Timeline& timeline,
                                           std::vector<Message> messages);

}  // namespace chimera
