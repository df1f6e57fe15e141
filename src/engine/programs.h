#pragma once

#include <cstdint>
#include <set>

#include "engine/run_shape.h"
#include "passes/unroll.h"
#include "runtime/executor.h"
#include "schedule/place_all_reduces.h"
#include "schedule/program.h"
#include "schedule/rank_layout.h"
#include "transport/groups.h"

// Which ranks have to be connected for the messages of a program.

// The programs of a run: lowered from its schedule, and proven before anything is started. Every transport has a queue
// for each direction of a pair of ranks, so they are programs for ChannelDiscipline::PerDirection.

namespace chimera {

/// Adds the pairs of ranks between which the program's transfers go, in every group.
void add_talking_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs);

struct ProgramChoices {
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  std::set<StageId> recompute = {};  // stages that run forward again before backward
  Pairs pairs = Pairs::InOrder;
  bool canonical = false;  // the blocks of every stage are added in one order, also where one rank holds it
};

/// One step of a synchronous schedule. Groups run it side by side and meet only where all workers of a group do, or all
/// that hold a stage: what one group can run to its end, all can. Throws ScheduleError where the program could get
/// stuck.
[[nodiscard]] Program training_program(const RunShape& shape, const ProgramChoices& choices);

/// The program of validation: the forwards alone. Throws as training_program().
[[nodiscard]] Program validation_program(const RunShape& shape);

/// What the executors of a group have to know of the run's programs.
[[nodiscard]] ProgramShape program_shape(const RunShape& shape, GroupId group);

/// `steps` steps of an asynchronous schedule without a flush. Throws ConfigError as lower_stream() does, and where the
/// schedule, repeated, is no longer valid.
[[nodiscard]] Stream stream_program(const RunShape& shape, std::int64_t steps, const std::set<StageId>& recompute);

}  // namespace chimera
