#pragma once

#include <vector>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// Whether a program always runs to its end, under zero buffering: a transfer happens only when both its start-send and
/// its post-receive have been issued, matched in queue order by the discipline; workers block at waits (and in
/// ReduceScalars) only. Also that every compute, send and wait finds the tensor it needs, and that each send meets the
/// receive of the same tensor.
///
/// One maximal run decides: no instruction chooses between messages (there is no receive-any), and an instruction that
/// may run stays able to run whatever the other workers do, since queues only grow at their ends and completed
/// transfers stay completed. So runs are confluent: if one maximal run reaches the end of every worker, all do, and if
/// one gets stuck, all get stuck at the same instructions. The run costs time linear in the instructions.
///
/// Returns all violations found; a deadlock's counter-example is a cycle of workers that wait for each other.
[[nodiscard]] std::vector<Violation> check(const Program& program, ChannelDiscipline discipline);

}  // namespace chimera
