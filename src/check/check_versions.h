#pragma once

#include "check/findings.h"
#include "schedule/schedule.h"

namespace chimera {

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

}  // namespace chimera
