#pragma once

// From the shape of a run to the programs of its workers: it lowers the schedule (passes/lower.h) and proves that the
// program cannot deadlock on the transport, before any rank starts. Transports have a queue per direction of a rank
// pair (ChannelDiscipline::PerDirection).

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

void add_communicating_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs);

/// Returns a step of a synchronous schedule. `options` are those of lower(); groups and a tied matrix of `shape` also
/// need sums. Throws ScheduleError if the program could deadlock.
[[nodiscard]] Program training_program(const RunShape& shape, LoweringOptions options = {});

/// Returns only the forwards. Throws as training_program() does.
[[nodiscard]] Program validation_program(const RunShape& shape,
                                         std::int64_t receives_ahead = LoweringOptions().receives_ahead);

[[nodiscard]] ProgramShape program_shape(const RunShape& shape, GroupId group);

/// Returns steps of an asynchronous schedule without a flush. Throws ConfigError as lower_stream() does, and if the
/// repeated schedule is invalid.
[[nodiscard]] Stream stream_program(const RunShape& shape, std::int64_t steps, const std::set<StageId>& recompute,
                                    const std::set<StageId>& offload = {});

}  // namespace chimera
