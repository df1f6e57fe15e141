#pragma once

#include <vector>

#include "check/violation.h"
#include "schedule/schedule.h"

namespace chimera {

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
