#pragma once

// Makes the programs of a run's workers: lists of instructions, such as ops, sends and all-reduces. The functions lower
// the schedule (passes/lower.h), and prove with check() (check/check_program.h) that the program cannot deadlock on the
// transport, before any rank starts. Transports have one message queue per direction of a pair of ranks
// (ChannelDiscipline::PerDirection).

#include <cstdint>
#include <set>

#include "engine/run_shape.h"
#include "passes/lower.h"
#include "passes/unroll.h"
#include "runtime/executor.h"
#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/rank_layout.h"
#include "transport/groups.h"

namespace chimera {

/// Adds to `pairs` the ranks that exchange messages in this program, in all data-parallel groups.
void add_communicating_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs);

/// Returns the program of one step of a synchronous schedule. `options` are those of lower(); all-reduces that only
/// data-parallel groups or a tied matrix of `shape` need are added. Throws ScheduleError if the program could deadlock.
[[nodiscard]] Program training_program(const RunShape& shape, LoweringOptions options = {});

/// Returns a program with the forwards of a step only. `receives_ahead` is as in LoweringOptions. Throws as
/// training_program() does.
[[nodiscard]] Program validation_program(const RunShape& shape,
                                         std::int64_t receives_ahead = LoweringOptions().receives_ahead);

/// Returns what the executor of data-parallel group `group` needs besides the program.
[[nodiscard]] ProgramShape program_shape(const RunShape& shape, GroupId group);

/// Returns `steps` steps of an asynchronous schedule as one program, without a flush between them. Stages in
/// `recompute` and `offload` use activation checkpointing and offloading. Throws ConfigError as lower_continuous()
/// does, and ScheduleError if the repeated schedule or its program is invalid.
[[nodiscard]] ContinuousProgram continuous_program(const RunShape& shape, std::int64_t steps,
                                                   const std::set<StageId>& recompute,
                                                   const std::set<StageId>& offload = {});

}  // namespace chimera
