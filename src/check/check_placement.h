#pragma once

#include "check/findings.h"
#include "schedule/schedule.h"

namespace chimera {

/// Adds what is wrong with the counts and with who holds what: stages and micro-batches positive and their product at
/// most kMostOps, at least one replica, and in each every stage on one of the workers. Returns whether the counts are
/// right.
bool check_placement(const Placement& placement, std::int64_t stages, std::int64_t micro_batches,
                     std::size_t num_workers, Findings& findings);

}  // namespace chimera
