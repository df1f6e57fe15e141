#pragma once
// Whether a schedule is complete and can run: each op exists once, on the worker of its stage, and no ops wait for each
// other. Every other part of the program requires such a schedule. Files of users are checked when they are read,
// generators in tests. check_program.h checks what lower() makes of it.

#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Adds violations in counts (stages, micro-batches and slices are positive, at most kMostSlices slices, and their
/// product is at most kMostOps) and placement (1 to 32,767 replicas, each with every stage on a worker). Returns
/// whether the counts are right.
bool check_placement(const Placement& placement, std::int64_t stages, std::int64_t micro_batches, std::int64_t slices,
                     std::size_t num_workers, Findings& findings);

/// Checks that every (stage, micro-batch, slice) has one F and one B (or I and W), with the same replica, on the worker
/// that holds the stage, and that the workers' orders and the dependencies form no cycle. If so, checks pairs (see
/// Pairs), also for cycles if they run together, and weight versions (all 0 in a synchronous schedule). An asynchronous
/// schedule has no slices and no pairs.
///
/// Weight versions of an asynchronous schedule: each replica's micro-batches, ascending, form groups of
/// `updates.micro_batches`. The last backward (B or W) of a full group at a stage makes the stage's next version.
/// - An op uses a version that exists at its position in the worker's order.
/// - A forward uses the version given by `updates`: the newest, or the delayed one.
/// - All ops of a micro-batch at a stage use one version.
/// - Updates are made in the order of the groups. No weight gradient of a later group precedes the update of an earlier
///   group, because it would be added to that update's gradients.
/// - At most `updates.versions` versions of a stage are kept: the newest, and every version that a later op uses.
///
/// Returns the violations: at most 10,000 or 20,000 of each kind, then the number of the others. The result is empty if
/// and only if the schedule may be lowered, with any Pairs. A cycle is a shortest one (shortest_wait_cycle), with two
/// places per wait: the op and its input. Never throws; accepts any ids. Takes time linear in the ops and in stages x
/// micro-batches x slices.
[[nodiscard]] std::vector<Violation> check(const Schedule& schedule);

}  // namespace chimera
