#pragma once

// Makes the program of a run: for each worker a list of instructions, such as ops, sends and all-reduces. The functions
// make it from the schedule (lower() in passes/lower.h), and prove with check() (check/check_program.h) that it cannot
// deadlock, before any rank starts. They assume transports with one message queue per direction of a pair of ranks
// (ChannelDiscipline::PerDirection).

#include "engine/run_shape.h"
#include "passes/lower.h"
#include "passes/unroll.h"
#include "runtime/executor.h"
#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/rank_layout.h"
#include "transport/groups.h"

namespace chimera {

/// Adds to `pairs` the pairs of ranks that exchange messages in this program, in all data-parallel groups.
void add_communicating_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs);

/// Returns the program of one step of a synchronous schedule. `options` are those of lower(), to which the function
/// adds the all-reduces that are needed because of data parallelism or of a matrix that the first and last stage share.
/// Throws ScheduleError if the program could deadlock.
[[nodiscard]] Program training_program(const RunShape& shape, LoweringOptions options = {});

/// Returns a program with the forwards of a step only. `receives_ahead` is the number of receives per channel that are
/// posted before they are needed. Throws ScheduleError if the program could deadlock.
[[nodiscard]] Program validation_program(const RunShape& shape,
                                         std::int64_t receives_ahead = LoweringOptions().receives_ahead);

/// Returns what the executor of data-parallel group `group` needs besides the program (runtime/worker_context.h).
/// Callers set the fields that depend on options, such as `canonical` and `scatters`.
[[nodiscard]] ProgramShape program_shape(const RunShape& shape, GroupId group);

/// Returns `steps` steps of an asynchronous schedule as one program: the pipeline does not drain between them. Stages
/// in `recompute` use activation checkpointing, and stages in `offload` keep activations in host memory. Throws
/// ConfigError as lower_continuous() (passes/unroll.h) does, for example if the micro-batches per update do not divide
/// the micro-batches of a step, and ScheduleError if the repeated schedule or its program is invalid.
[[nodiscard]] ContinuousProgram continuous_program(const RunShape& shape, std::int64_t steps,
                                                   const std::set<StageId>& recompute,
                                                   const std::set<StageId>& offload = {});

}  // namespace chimera
