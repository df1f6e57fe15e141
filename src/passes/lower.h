#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

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

/// LoweringOptions::receives_ahead on GPUs, where a posted receive occupies multiprocessors until its message arrives.
inline constexpr std::int64_t kReceivesAheadOnGpus = 1;

struct LoweringOptions {
  ChannelDiscipline discipline = ChannelDiscipline::PerDirection;
  std::int64_t receives_ahead = 2;   // receives per channel that are posted before their turn (see lower)
  std::int64_t sends_behind = 2;     // unfinished sends per channel, not counting activations that get a gradient back
  std::set<StageId> recompute = {};  // activation checkpointing: stages that rerun F before B or I
  std::set<StageId> offload = {};    // stages with activations in host memory until B or I
  AllReduceOptions all_reduces = {};
  Pairs pairs = Pairs::InOrder;  // Together: the two Computes of a pair are adjacent
  std::int64_t steps = 1;        // number of steps of an unrolled asynchronous schedule; divides its micro-batches
};

/// Returns the program of a schedule: receives, sends, all-reduces, sums of norms and losses, and the optimizer step.
///
/// Let t be the topological order of ops by (unit_start_times, worker). A message has the position of the op that makes
/// it. The waits before a post or send concern only messages that are earlier in t, so the program cannot deadlock,
/// even without buffering (docs/architecture.md).
/// - start-send: right after the op that makes the tensor; wait-receive: right before the op that needs it.
/// - post-receive: at the latest before the receiver's first op after the tensor's maker in t (the message's *turn*).
///   At the earliest at the turn of the message `receives_ahead` places before it on the channel. Receives of a
///   channel are posted in the sender's order. With SerialPair a post also follows the sends to the same peer that
///   precede its turn, so that both ends use the order t.
/// - wait-send of an activation: when its gradient has arrived, so it never blocks. Other sends, and sends of
///   recomputed stages (to free them early), are waited for before the channel's `sends_behind`-th later send, or at
///   the end.
/// - recompute: before the wait for the gradient that its backward needs, so that the two overlap.
/// - offload: after the start-send of a forward in offloaded_forwards(); load: before the op before the backward.
/// - a pair that runs together is one op: all its waits come before both Computes, its sends after both.
///
/// The receives posted at once do not grow with N. All-reduces start as in place_all_reduces() and are waited for
/// before the norms are summed. An asynchronous schedule updates as in place_updates(). If there are several steps,
/// each worker sums a step's norms and losses before its first op after the step's last op in t, so the pipeline does
/// not drain.
///
/// Throws ScheduleError if the schedule has a cycle. Requires a schedule that check() accepts.
[[nodiscard]] Program lower(const Schedule& schedule, const LoweringOptions& options = {});

/// Returns only the forwards, with weight version 0, for validation. Its program has no all-reduce and no optimizer
/// step.
[[nodiscard]] Schedule forward_only(const Schedule& schedule);

/// Returns the maximum number of receives that a worker has posted and not yet awaited.
[[nodiscard]] std::int64_t peak_posted_receives(const Program& program);

}  // namespace chimera
