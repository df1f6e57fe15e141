#pragma once

#include <cstdint>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// The stages whose gradients a training program must sum.
enum class SummedStages : std::uint8_t {
  OfSeveralWorkers,  ///< where one worker holds a stage, its gradients are the sum already
  All                ///< other groups run the program too, or the sum is formed in an order of its own
};

/// Whether a program always runs to its end, under zero buffering: a transfer happens only when both its start-send and
/// its post-receive have been issued, matched in queue order by the discipline; workers block at waits (and in
/// ReduceScalars) only. And whether it then has done what it should:
/// - every op once, on the worker that holds its stage, with its inputs there: F at every stage for every micro-batch,
///   and where anything runs backward, B (or I and W) too;
/// - every tensor sent at most once, each send meeting the receive of the same tensor, every transfer waited for once
///   by each end, after its start;
/// - where anything runs backward: each of the `summed` stages (and of a tied program stage S, the tied matrix) summed
///   once by every worker that holds it, after the worker's last weight gradient of it; waited for before the norms are
///   summed; these once by every worker, behind its ops; then one optimizer step. Without backward: no sum of
///   gradients, no step;
/// - where a program updates stages one by one instead: updates in order, each with all gradients since the one before
///   (after their sum, where there is one), every gradient in one, no optimizer step; every op with a weight version
///   that is held: made, and not dropped;
/// - of a pair (Op::paired), the two ops one behind the other, of two micro-batches, the inputs of both there before
/// it;
/// - of several steps, the norms once for each, behind the step's ops and updates;
/// - all-reduces started in one order: no cycle in the orders of all workers together, so that groups that share
///   workers cannot block each other where a collective starts only after the one before.
///
/// One maximal run decides, because runs are confluent. Let an instruction be *enabled* where its worker stands at it
/// and what it waits for has happened. (1) An enabled instruction stays so whatever other workers do: a wait looks at
/// events that are never undone (a transfer matched, all members started, all workers arrived), anything else waits for
/// nothing. (2) What an instruction does depends on the program alone, not on timing: there is no receive-any, so the
/// k-th entry of each end of a queue is fixed by the lists, which entries match is fixed by k, and a transfer has
/// happened exactly if the first k entries of both ends are issued and agree. (3) So two enabled instructions of two
/// workers lead to the same state in either order: the diamond property. By Newman's lemma, as every run is finite, all
/// maximal runs end in the same state: if one gets to the end of every worker, all do, and if one is stuck, all are, at
/// the same instructions. Whether a worker finds what it needs (its inputs, an earlier issue) depends on its own
/// list before the instruction only, so whether there are violations does not depend on the order either. The run is
/// linear in the instructions: a worker is tried again only when what it waits for has happened.
///
/// Returns all violations up to where workers are stuck (of each kind the first 20,000, then their number), none
/// exactly if the program is right; of a deadlock a shortest cycle of workers that wait for each other
/// (check/shortest_cycle.h; a worker in ReduceScalars counts as waiting for the first 64 that have not arrived), or the
/// ended worker that one waits for. Never throws; takes any ids.
[[nodiscard]] std::vector<Violation> check(const Program& program, ChannelDiscipline discipline,
                                           SummedStages summed = SummedStages::OfSeveralWorkers);

}  // namespace chimera
