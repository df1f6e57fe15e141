#pragma once

// The event loop of a simulation in which workers slow each other down, because they share cores, network interfaces or
// caches (contention.h). simulate() calls it only in this case. If nothing is shared, simulate() uses a faster loop
// (simulate.cc), in which each worker advances on its own as far as it can. Both loops use the same PipelineState
// (pipeline_state.h), which has the rules of the pipeline.

#include "simulate/contention.h"
#include "simulate/pipeline_state.h"

namespace chimera {

/// Simulates the pipeline to its end, event by event; PipelineState::take_timeline() then returns the times. If ops
/// wait for each other in a cycle, it ends early, and PipelineState::require_ends() throws. An *activity* is an op,
/// update, message or all-reduce, and its duration in the costs is for rate 1. Workers of a node that run ops and
/// updates advance at rate 1 if there are enough cores; if k of them share fewer cores, at rate cores / k / (1 +
/// switching) (processor sharing). An all-reduce uses the fraction `share` (SharedCores::all_reduce_share) of a core on
/// each of its workers; if its computation runs at rate r, it advances at rate 1 / (1 - share + share / r). Messages
/// and waiting use no core. Overlapping activities also slow each other down by SharedCores::contention. With
/// contention, messages wait in queues for their links, because their speed may change in transit.
///
/// Between two events all rates are constant:
///
///     +-> next event: an activity ends, or a worker can begin --> end and begin activities --+
///     +------------ rates of all activities, from the cores and links in use  <-------------+
void run_on_shared_cores(PipelineState& state, const SharedCores& cores);

}  // namespace chimera
