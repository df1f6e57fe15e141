#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

// Where the workers of an asynchronous schedule update their weights, and forget old ones.

// From the figure to what the workers do.

namespace chimera {

/// An instruction that stands right after the op at position `after` of its worker's list.
struct PlacedInstruction {
  std::size_t after = 0;
  Instruction instruction;
};

/// For each worker, in order: an UpdateWeights after the last weight gradient of every update of a stage, a DropWeights
/// of each version after its last use (of the newest, where nothing uses it any more, before the update that replaces
/// it), and where `sums` is set a start and a wait of the stage's all-reduce before each update. A last group of
/// micro-batches that is not complete is an update after the worker's last op. Nothing for a synchronous schedule.
/// Requires a schedule that check() accepts. Time linear in the ops, but for a logarithm of the versions.
[[nodiscard]] std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums);

struct LoweringOptions {
  ChannelDiscipline discipline = ChannelDiscipline::PerDirection;
  std::int64_t receives_ahead = 2;   // receives a channel may have posted before their sender's turn comes
  std::int64_t sends_behind = 2;     // sends a channel may have under way that no arriving gradient accounts for
  std::set<StageId> recompute = {};  // activation checkpointing: stages that forward again before B or I
  AllReduceOptions all_reduces = {};
  Pairs pairs = Pairs::InOrder;  // together: the two Computes of a pair stand side by side, the first one paired
  std::int64_t steps = 1;        // of an unrolled asynchronous schedule; divides its micro-batches
};

/// The program of a schedule: receives, sends, all-reduces, the sum of norms and losses, and the optimizer step.
///
/// *Order.* Let t be the topological order of ops by (unit_start_times, worker). A message has the place of the op that
/// makes it. Each worker issues a message's post or send, and waits for messages, so that whatever stands before an
/// issue in its list waits only for messages that are earlier in t:
/// - start-send stands right after the op that makes the tensor; wait-receive right before the op that needs it;
/// - a receive is posted no later than before the receiver's first op that comes after its maker in t (its *turn*), and
///   no earlier than the turn of the message `receives_ahead` places before it on the channel. Receives of a channel
///   are posted in the sender's order. With SerialPair a post also stays behind the sends to the same peer that precede
///   its turn, so that both ends issue the pair's transfers in the order t;
/// - wait-send of an activation stands where its gradient has arrived, hence never blocks; any other send, and one of a
///   recomputed stage, which is to be freed early, is waited for before the channel's send `sends_behind` places later
///   is started, or at the end;
/// - recompute stands before the wait for the gradient that its backward needs: the two overlap;
/// - a pair that runs together is one op in all this, with one place in t: what its ops wait for stands before both,
///   what they send behind both.
/// *Why it cannot get stuck with zero buffering.* Take the message earliest in t that never completes. All that its two
/// ends wait for before issuing it is earlier in t, hence completes, and so are the transfers queued before it; so both
/// ends issue it and it completes. `check` does not rely on this: it runs the program.
///
/// Receives posted but not yet waited for are bounded by what the schedule itself keeps waiting plus `receives_ahead` a
/// channel, whatever N. All-reduces start where place_all_reduces() says and are waited for before the norms are
/// summed. An asynchronous schedule updates where place_updates() says, and of several steps each has its sum of norms
/// and losses: on every worker before its first op that comes after the step's last one in t, so that all reach it at
/// about one time and nothing drains.
/// Throws ScheduleError where the schedule has a cycle; requires a schedule that check() accepts.
[[nodiscard]] Program lower(const Schedule& schedule, const LoweringOptions& options = {});

/// The forwards of a schedule alone, of one weight version: what validation runs. Lowered, it has no all-reduce and no
/// optimizer step.
[[nodiscard]] Schedule forward_only(const Schedule& schedule);

/// Most receives that a worker has posted and not yet waited for, over all workers: the room lowering asks for.
[[nodiscard]] std::int64_t peak_posted_receives(const Program& program);

}  // namespace chimera
