#pragma once
// The proof that a program cannot deadlock, made before any rank runs it. `chimera check`, `chimera train` and the
// planner check every program that lower() returns. It finds, for example, that here neither
// worker gets past its second instruction:
//
//   worker 0   post receive of 1B0   wait for 1B0 from worker 1   send 0F0 to worker 1
//   worker 1   post receive of 0F0   wait for 0F0 from worker 0   send 1B0 to worker 0
//
// The check runs the program once, without tensors: an instruction is enabled if its worker is at it and the events
// that it waits for have happened. One run decides about all runs. Enabled instructions stay enabled, because events
// are never undone. Enabled instructions of two workers have the same effect in either order: there is no receive-any,
// so that the instruction lists alone determine the k-th entry at each end of a queue. By Newman's lemma all maximal
// runs end in the same state.
//
// Rules of progress: a transfer happens only after both its start-send and its post-receive, matched in queue order by
// the discipline. Workers block only at waits and in ReduceScalars. On a GPU, a first use of an op also waits for the
// device, so a rank runs all its ops once before the first step (Executor::warm_up).
//
// Rules of the work:
// - Every op runs once, on the worker that holds its stage, with its inputs there: F at every stage for every slice of
//   every micro-batch and, in a training program (with a backward, all-reduce or update), B (or I and W).
// - Every tensor is sent at most once, each send matches the receive of the same tensor, and each end waits once for
//   every transfer, after its start.
// - In training, every worker sums each of its SummedStages (and the tied matrix, group S) once, after its last weight
//   gradient of it. It waits for the result, sums the norms once after its ops, and runs one optimizer step. Other
//   programs have no sum of gradients and no step.
// - With UpdateWeights instead of the optimizer step, updates are in order. Each has all gradients since the update
//   before, after their all-reduce if any, and no gradient is left over. Ops use weight versions that are made and not
//   dropped.
// - The two ops of a pair (Op::paired) are adjacent, of different micro-batches, with all inputs there before both.
// - Offloaded activations exist and are loaded before B, I or recomputation. Program::most_on_device is kept.
// - With several steps, the norms are summed once per step, after its ops and updates.
// - The orders of all-reduce starts on the workers form no cycle, so that groups that share workers cannot block each
//   other.

#include <cstdint>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// Stages whose gradients a training program must sum.
enum class SummedStages : std::uint8_t {
  OfSeveralWorkers,  ///< Several workers hold the stage; otherwise its gradients are already the sum
  All                ///< Other groups run the program too, or the reduction is canonical
};

/// Checks that the program always completes, and that it does the work of a step, by the rules at the head of this
/// file. Returns the violations found before workers block (20,000 of each kind, then their number), empty if and only
/// if the program is correct. A deadlock is a shortest cycle of workers that wait for each other, or a worker that
/// waits for an ended worker. A worker in ReduceScalars waits for the first 64 missing workers. Takes time linear in
/// the instructions. Never throws; accepts any ids.
[[nodiscard]] std::vector<Violation> check(const Program& program, ChannelDiscipline discipline,
                                           SummedStages summed = SummedStages::OfSeveralWorkers);

}  // namespace chimera
