#pragma once

// The clock of a simulation in which workers slow each other down: they share cores, network interfaces or caches
// (contention.h). simulate() uses it only then, because it advances event by event and looks at all workers each time.
// On cores of their own, workers run ahead of each other instead (simulate.cc). Both clocks drive the same
// PipelineState.

#include "simulate/contention.h"
#include "simulate/pipeline_state.h"

namespace chimera {

/// Runs the pipeline on cores that its workers share, event by event. While k workers of a node run ops and updates,
/// each advances at rate 1 if k <= cores, else cores / k / (1 + switching) (processor sharing). An all-reduce uses
/// all_reduce_share of a core on each of its workers; if its computation runs at rate r, it advances at rate
/// 1 / (1 - share + share / r). Messages and waiting use no core. Costs are durations on an own core. Overlapping
/// activities also slow each other down per `contention`; then messages wait for their links in queues, because their
/// speed changes in transit.
///
/// Between two events all rates are constant:
///
///     +-> next event: an activity ends, or a worker can begin --> end and begin activities --+
///     +------------ rates of all activities, from the cores and links in use  <-------------+
void run_on_shared_cores(PipelineState& state, const SharedCores& cores);

}  // namespace chimera
