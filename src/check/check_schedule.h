#pragma once
// Checks that a schedule is complete and can run: each op exists once, on the worker of its stage, and no ops wait for
// each other. (F is a forward op, B a backward op; I and W are the parts of a split backward, input gradient and weight
// gradient.) All other code requires such a schedule. A schedule from a user's file is checked when it is read; the
// generated schedules are checked in tests. check_program.h checks the instructions that lower() makes of a schedule.

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Adds to `findings` a violation for each wrong count or placement. Counts are right if stages, micro-batches and
/// slices are positive, slices are at most kMaxSlices, and the product of the three is at most kMaxOps. A placement
/// is right if it has 1 to 32,767 replicas, and each places every stage on one of `num_workers` workers. Returns
/// whether the counts are right.
bool check_placement(const Placement& placement, std::int64_t stages, std::int64_t micro_batches, std::int64_t slices,
                     std::size_t num_workers, Findings& findings);

/// Checks that every (stage, micro-batch, slice) has one F and one B (or I and W), with the same replica, on the worker
/// that holds the stage. Also checks that no ops wait for each other, because of the workers' orders and the inputs of
/// ops. If so, checks the pairs of ops that may overlap (Pairs in schedule/schedule.h), and that no ops wait for each
/// other if both ops of each pair start together. Then checks weight versions (all 0 in a synchronous schedule). An
/// asynchronous schedule has no slices and no pairs.
///
/// An asynchronous schedule updates weights while micro-batches are in flight, and keeps older versions of the weights
/// for them. Each replica's micro-batches, ascending, form groups of `updates.micro_batches`. The last backward (B or
/// W) of a full group at a stage makes the stage's next version. The rules:
/// - An op uses a version that exists at its position in the worker's order.
/// - A forward uses the newest version. If `updates.delay` is d, a micro-batch of group t (from 0) uses version
///   max(0, t - d) instead.
/// - All ops of a micro-batch at a stage use one version.
/// - Updates are made in the order of the groups. At each stage, the weight gradients of a group follow the update of
///   the group before, because the update would use them otherwise.
/// - At most `updates.versions` versions of a stage are kept: the newest, and every version that a later op uses.
///
/// Returns the violations, at most Findings::kMaxListed of each kind. If there are more, a last violation of the kind
/// has the number of the others. The result is empty if and only if lower() can make a program of the schedule, whether
/// or not the ops of a pair run together (Pairs). If ops wait for each other, the violation names a shortest cycle of
/// them (wait_cycle.h), with two places per wait: the op and its input. Never throws; accepts any ids. Takes time
/// linear in the ops and in stages x micro-batches x slices.
[[nodiscard]] std::vector<Violation> check(const Schedule& schedule);

}  // namespace chimera
