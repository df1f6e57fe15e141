#pragma once

#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

/// Adds each pair that is none (Pairs says what one is; an asynchronous schedule has none), and where all are right,
/// whether pairs that run together wait for each other: a pair starts only when the inputs of both its ops are there,
/// so it cannot run where one of them needs the other through other workers' messages, though the ops run one after the
/// other. Then a shortest cycle of waits, as for ops. Requires ops in range.
void check_pairs(const Schedule& schedule, Findings& findings);

/// Adds a shortest cycle of ops that wait for each other, where some cannot run. Requires ops in range.
void check_acyclic(const Schedule& schedule, Pairs pairs, Findings& findings);

/// Adds what is wrong with the counts and with who holds what: stages and micro-batches positive and their product at
/// most kMostOps, at least one replica, and in each every stage on one of the workers. Returns whether the counts are
/// right.
bool check_placement(const Placement& placement, std::int64_t stages, std::int64_t micro_batches,
                     std::size_t num_workers, Findings& findings);

/// Adds what is wrong with the weight versions of an asynchronous schedule whose ops are all there, placed right and
/// free of cycles. Each replica's micro-batches, ascending, fall into groups of `updates.micro_batches`; the last
/// backward (B, or W) of a group at a stage makes the stage's next version (an incomplete last group makes none).
/// - An op uses a version that has been made when its turn comes in the worker's order.
/// - A forward uses the version that the rule of `updates` gives it: the newest, or the one with the stated delay.
/// - All ops of a micro-batch at a stage use one version.
/// - Updates are made in order, and no weight gradient of a later group comes before an update: it would enter its sum.
/// - At most `updates.versions` versions of a stage are kept at once. Kept are the newest and every one that an op
///   still to come uses, so of micro-batches in flight and of those still to be admitted.
/// Time linear in the ops; memory linear in stages x micro-batches.
void check_versions(const Schedule& schedule, Findings& findings);

/// Whether a schedule is one: every (stage, micro-batch) forwarded once and run backward once (B, or I and W), by one
/// replica, on the worker that holds the stage, and the workers' orders free of cycles with the dependencies. Where all
/// that holds, whether its pairs are pairs and can run together (check/check_pairs.h), and the weight versions right: 0
/// throughout a synchronous schedule; in an asynchronous one as check/check_versions.h says.
///
/// Returns all violations (of each kind the first ten or twenty thousand, then their number), none exactly if the
/// schedule may be lowered, its pairs in order or together; of ops that wait for each other a shortest cycle
/// (check/wait_cycle.h), its places by pairs: the op, and what it waits for. Never throws; takes any ids. Time linear
/// in the ops and in stages x micro-batches.
[[nodiscard]] std::vector<Violation> check(const Schedule& schedule);

}  // namespace chimera
