#pragma once
// From a schedule to a program. A schedule is only the order of each worker's ops. A worker that runs it must also
// receive inputs, send results, sum gradients and update weights: lower() adds these instructions. The executor
// (runtime/executor.h) runs the result. An example is 1F1B with two stages and two micro-batches, where 1F0 is the
// forward of stage 1 on micro-batch 0 and 1B0 its backward:
//
//   worker 0:  0F0 0F1 0B0 0B1                            worker 1:  1F0 1B0 1F1 1B1
//
//   post receive of 1B0, of 1B1                           post receive of 0F0, of 0F1
//   0F0, send 0F0 to worker 1                             wait for 0F0, 1F0
//   0F1, send 0F1 to worker 1                             1B0, send 1B0 to worker 0
//   wait for 1B0, wait for the send of 0F0, 0B0           wait for 0F1, 1F1
//   wait for 1B1, wait for the send of 0F1, 0B1           1B1, send 1B1 to worker 0
//                                                         wait for the sends of 1B0 and 1B1
//   sum norms and losses, optimizer step                  sum norms and losses, optimizer step
//
// The positions of these instructions decide how far computation and communication overlap, how much memory pending
// messages take, and whether workers can deadlock. The rules below refer to one *global order* of the ops of all
// workers: by their start times if every op takes unit time (unit_start_times()), then by worker. Every process
// computes the same global order. A message has the position of the op that makes its tensor. A *channel* is all
// messages from one worker to another.
//
// - start-send: right after the op that makes the tensor. wait-receive: right before the op that needs it.
// - post-receive: a message's *turn* is right before the receiver's first op that comes, in the global order, after the
//   op that makes the tensor. Its receive is posted at this turn or earlier, but not before the turn of the message
//   that is `receives_ahead` messages earlier on the channel, so the number of posted receives does not grow with the
//   number of micro-batches: above, a third micro-batch would have its 1B2 posted at the turn of 1B0, before 0B0. On
//   GPUs it is also posted at most one op before its turn. Receives of a channel are posted in the sender's order. With
//   ChannelDiscipline::SerialPair (schedule/program.h), a receive is also posted after the sends to the same peer that
//   precede its turn, so that both ends follow the global order.
// - wait-send of an activation: when its gradient has arrived, so it never blocks. For other sends, and for sends of
//   recomputed stages (to free the tensor early): before the `sends_behind`-th later send on the channel, or at the
//   end.
// - recompute: before the wait for the gradient that the backward needs, so that the two overlap.
// - offload: after the start-send of a forward in offloaded_forwards() (schedule/offload.h). load: one op before the
//   backward, so that the copy overlaps with this op.
// - A pair (a forward and a backward that run at once) is one op: all its waits come before both Computes, its sends
//   after both.
// - All-reduces start at the positions that place_all_reduces() returns, and are waited for before the norms are
//   summed. place_updates() gives the positions of updates in an asynchronous schedule. If a program has several steps,
//   each worker sums the norms and losses of a step before its first op that comes, in the global order, after the
//   step's last op, so that the pipeline does not drain.
//
// The waits before a post or a send concern only earlier messages of the global order. Therefore the program cannot
// deadlock, even without buffering (docs/architecture.md); check/check_program.h proves it for each program again.

#include <cstddef>
#include <set>

#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// Value of LoweringOptions::receives_ahead on GPUs, where a posted receive occupies multiprocessors until its message
/// arrives. Receives are then posted at most one op before their turn.
inline constexpr std::int64_t kReceivesAheadOnGpus = 1;

/// The choices that the rules leave open.
struct LoweringOptions {
  /// How the transport matches sends and receives (schedule/program.h).
  ChannelDiscipline discipline = ChannelDiscipline::PerDirection;
  std::int64_t receives_ahead = 2;   // Receives per channel that are posted before their turn
  std::int64_t sends_behind = 2;     // Unfinished sends per channel, not counting activations that get a gradient back
  std::set<StageId> recompute = {};  // Activation checkpointing: stages that run a forward again before its backward
  std::set<StageId> offload = {};    // Stages with activations in host memory until the backward
  AllReduceOptions all_reduces = {};
  Pairs pairs = Pairs::InOrder;  // Together: a pair runs at once, and its two Computes are adjacent
  std::int64_t steps = 1;        // Steps of an unrolled asynchronous schedule; divides its micro-batches
};

/// Returns the program of a schedule, by the rules above. Workers that hold no stage (lost ones) have no instructions.
/// Requires a schedule that check() (check/check_schedule.h) accepts. Throws ScheduleError if its ops wait in a cycle.
[[nodiscard]] Program lower(const Schedule& schedule, const LoweringOptions& options = {});

/// An instruction right after the op at position `after`, from 0, of its worker's list.
struct PlacedInstruction {
  std::size_t after = 0;
  Instruction instruction;
};

/// Returns [worker]: the updates of an asynchronous schedule, in order. Empty for a synchronous schedule.
/// - An UpdateWeights after the last weight gradient of each update of a stage. If micro-batches remain at the worker's
///   end, too few for an update, they make one more.
/// - A DropWeights after the last use of each weight version. A version whose last use comes before the next update is
///   dropped right before this update, because until then it is the newest.
/// - If `sums` (several workers hold each stage): start and wait of the stage's all-reduce before each update.
///
/// Requires a schedule that check() accepts. Takes time O(ops log versions).
[[nodiscard]] std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums);

/// Returns the schedule with only its forwards, all with weight version 0, for validation. lower() adds no all-reduce
/// and no optimizer step to it.
[[nodiscard]] Schedule forward_only(const Schedule& schedule);

/// Returns the maximum number of receives that any worker has posted and not yet awaited, at any time.
[[nodiscard]] std::int64_t peak_posted_receives(const Program& program);

}  // namespace chimera
