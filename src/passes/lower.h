#pragma once
// From a schedule to a program. A schedule is only the order of each worker's ops. A worker that runs it must also
// receive inputs, send results, sum gradients and update weights: lower() adds these instructions. 1F1B with two stages
// and two micro-batches:
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
// Where an instruction stands decides how far computation and communication overlap, how much memory waiting messages
// take, and whether workers can block each other. All rules refer to t, the order of all ops by (unit_start_times(),
// worker), which every process computes alike. A message has the position in t of the op that makes it.
//
// - start-send: right after the op that makes the tensor. wait-receive: right before the op that needs it.
// - post-receive: at the latest before the receiver's first op after the tensor's maker in t (the message's *turn*), at
//   the earliest at the turn of the message `receives_ahead` places before it on the channel, so the receives posted at
//   once do not grow with N; on GPUs also at most one op before its own turn. Receives of a channel are posted in the
//   sender's order. With SerialPair a post also follows the sends to the same peer that precede its turn, so that both
//   ends use the order t.
// - wait-send of an activation: when its gradient has arrived, so it never blocks. Other sends, and sends of recomputed
//   stages (to free them early), are waited for before the channel's `sends_behind`-th later send, or at the end.
// - recompute: before the wait for the gradient that its backward needs, so that the two overlap.
// - offload: after the start-send of a forward in offloaded_forwards(). load: before the op before the backward.
// - A pair that runs together is one op: all its waits come before both Computes, its sends after both.
// - All-reduces start as in place_all_reduces() and are waited for before the norms are summed. An asynchronous
//   schedule updates as in place_updates(). If there are several steps, each worker sums a step's norms and losses
//   before its first op after the step's last op in t, so the pipeline does not drain.
//
// The waits before a post or a send concern only messages that are earlier in t. Therefore the program cannot deadlock,
// even without buffering (docs/architecture.md); check/check_program.h proves it for each program again.

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// LoweringOptions::receives_ahead on GPUs, where a posted receive occupies multiprocessors until its message arrives.
/// Receives are then posted at most one op before their turn.
inline constexpr std::int64_t kReceivesAheadOnGpus = 1;

struct LoweringOptions {
  ChannelDiscipline discipline = ChannelDiscipline::PerDirection;
  std::int64_t receives_ahead = 2;   // Receives per channel that are posted before their turn
  std::int64_t sends_behind = 2;     // Unfinished sends per channel, not counting activations that get a gradient back
  std::set<StageId> recompute = {};  // Activation checkpointing: stages that rerun F before B or I
  std::set<StageId> offload = {};    // Stages with activations in host memory until B or I
  AllReduceOptions all_reduces = {};
  Pairs pairs = Pairs::InOrder;  // Together: the two Computes of a pair are adjacent
  std::int64_t steps = 1;        // Steps of an unrolled asynchronous schedule; divides its micro-batches
};

/// Returns the program of a schedule, by the rules at the head of this file. Throws ScheduleError if the schedule has a
/// cycle. Requires a schedule that check() accepts.
[[nodiscard]] Program lower(const Schedule& schedule, const LoweringOptions& options = {});

/// An instruction right after the op at position `after` of its worker's list.
struct PlacedInstruction {
  std::size_t after = 0;
  Instruction instruction;
};

/// Returns for each worker, in order: an UpdateWeights after the last weight gradient of each update of a stage; a
/// DropWeights after the last use of each version; and, if `sums` is set, start and wait of the stage's all-reduce
/// before each update. A newest version without further uses is dropped before the update that replaces it. An
/// incomplete last group of micro-batches is an update at the worker's end. Empty for a synchronous schedule. Requires
/// a schedule that check() accepts. Takes time O(ops log versions).
[[nodiscard]] std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums);

/// Returns only the forwards, with weight version 0, for validation. Its program has no all-reduce and no optimizer
/// step.
[[nodiscard]] Schedule forward_only(const Schedule& schedule);

/// Returns the maximum number of receives that a worker has posted and not yet awaited.
[[nodiscard]] std::int64_t peak_posted_receives(const Program& program);

}  // namespace chimera
