#pragma once
// Checks a program before any rank runs it: it cannot deadlock, and it does the work of a training step. A program is
// the list of instructions of each worker: ops, sends, receives, all-reduces and updates (schedule/program.h). `chimera
// check`, `chimera train` and the planner check every program that lower() makes of a schedule. In this example, 0F0 is
// the forward of micro-batch 0 at stage 0, and 1B0 its backward at stage 1. Both workers block at their second
// instruction:
//
//   worker 0   post receive of 1B0   wait for 1B0 from worker 1   send 0F0 to worker 1
//   worker 1   post receive of 0F0   wait for 0F0 from worker 0   send 1B0 to worker 0
//
// The check executes the program once, without tensors. One execution is enough: an instruction that can run stays able
// to run, and instructions of two workers have the same effect in either order, because each receive names its sender.
// All executions therefore end in the same state (Newman's lemma).

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// Stages whose gradients a training program must sum by an all-reduce.
enum class SummedStages : std::uint8_t {
  OfSeveralWorkers,  ///< Only stages that several workers of the program hold; for one data-parallel group
  All  ///< All stages: for several data-parallel groups that run the program, and for --reduction canonical
};

// Rules of check(). F is a forward op and B a backward op; I and W are the two parts of a split backward, input
// gradient and weight gradient. Names such as StartSend are kinds of instructions (schedule/program.h).
//
// Blocking
// - Workers block only in waits and in ReduceScalars.
// - A transfer happens once both its StartSend and its PostReceive have run. The ChannelDiscipline determines which
//   send matches which receive.
// - On a GPU, the first use of an op may also wait for the device. The check ignores this, because every rank runs all
//   its ops once before the first step (runtime/executor.h).
//
// Ops
// - Every op runs once, on the worker that holds its stage, after its inputs are on that worker.
// - Every slice of every micro-batch has an F at every stage. If the program trains (it has a backward, an all-reduce
//   or an update), every slice also has a B, or an I and a W, at every stage.
// - The two ops of a pair (Op::paired) are adjacent and of different micro-batches. The inputs of both exist before the
//   first starts.
// - Activations are offloaded only after their F. Offloaded activations are loaded before B, I or recomputation. At
//   most Program::most_on_device micro-batches of them stay on the device.
//
// Messages
// - Every tensor is sent at most once, and each send matches the receive of the same tensor.
// - Each end waits exactly once for every transfer that it has started.
//
// Gradients and updates
// - Each worker that holds a stage takes part once per step in the sum of losses and gradient norms (ReduceScalars),
//   after the ops and updates of the step.
// - In a synchronous training program, each worker all-reduces the gradients of its stages (SummedStages) once; also
//   those of the tied matrix, which the first and the last stage may share. An all-reduce starts after the last weight
//   gradient of the stage. The worker waits for it before ReduceScalars, and runs one OptimizerStep after
//   ReduceScalars.
// - In an asynchronous program, UpdateWeights replaces the OptimizerStep. The updates of a stage are in order. Each has
//   all gradients since the previous update, after their all-reduce if there is one, and no gradient is left over. Ops
//   use weight versions that exist at that time.
// - The orders in which workers start all-reduces form no cycle, so that all-reduces with common workers do not block
//   each other.

/// Checks the program by the rules above. Executes it until all workers have ended or blocked, and returns the
/// violations found: the first 20,000 of each kind, then the number of the others. The result is empty if and only if
/// the program is correct.
///
/// A deadlock is reported as a shortest cycle of workers that wait for each other, or as a worker that waits for a
/// worker that has ended. For a worker that waits in ReduceScalars, only the first 64 missing workers are considered.
/// Takes time linear in the number of instructions. Never throws: ids that do not exist are violations.
[[nodiscard]] std::vector<Violation> check(const Program& program, ChannelDiscipline discipline,
                                           SummedStages summed = SummedStages::OfSeveralWorkers);

}  // namespace chimera
