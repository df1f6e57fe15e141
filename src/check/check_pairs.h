#pragma once

#include "check/findings.h"
#include "schedule/schedule.h"

namespace chimera {

/// Adds each pair that is none (Pairs says what one is; an asynchronous schedule has none), and where all are right,
/// whether pairs that run together wait for each other: a pair starts only when the inputs of both its ops are there,
/// so it cannot run where one of them needs the other through other workers' messages, though the ops run one after the
/// other. Then a shortest cycle of waits, as for ops. Requires ops in range.
void check_pairs(const Schedule& schedule, Findings& findings);

/// Adds a shortest cycle of ops that wait for each other, where some cannot run. Requires ops in range.
void check_acyclic(const Schedule& schedule, Pairs pairs, Findings& findings);

}  // namespace chimera
