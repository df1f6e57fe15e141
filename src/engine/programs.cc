#include "engine/programs.h"

#include <algorithm>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "core/reject.h"

namespace chimera {

void add_communicating_pairs(const RankLayout& ranks, const Program& program, std::set<RankPair>& pairs) {
  for (std::size_t w = 0; w < program.workers.size(); ++w) {
    for (const Instruction& instruction : program.workers[w]) {
      if (!is_transfer(instruction.kind)) continue;
      // Groups run the same program, each with its own ranks.
      for (std::int64_t group = 0; group < ranks.data_parallel; ++group) {
        const auto rank_of = [&](WorkerId worker) {
          return static_cast<int>(ranks.rank({GroupId(group), worker}).value());
        };
        const auto [low, high] =
            std::minmax({rank_of(WorkerId(static_cast<std::int64_t>(w))), rank_of(instruction.peer)});
        pairs.insert({low, high});
      }
    }
  }
}

namespace {

Program proven(const Schedule& schedule, const LoweringOptions& options) {
  Program program = lower(schedule, options);
  // A proof costs milliseconds, and a deadlock costs a run.
  const auto violations = check(program, options.discipline,
                                options.all_reduces.every_stage ? SummedStages::All : SummedStages::OfSeveralWorkers);
  if (!violations.empty())
    throw ScheduleError("the program of this schedule could deadlock: " + violations.front().message);
  return program;
}

void require_valid(const std::vector<Violation>& violations, const Schedule& schedule) {
  if (violations.empty()) return;
  reject("schedule {}, several steps in a row: {}", schedule.name, violations.front().message);
}

}  // namespace

Program training_program(const RunShape& shape, LoweringOptions options) {
  // Within one group, only stages of several replicas are summed; with several groups, all are.
  options.all_reduces.every_stage = options.all_reduces.every_stage || shape.ranks.data_parallel > 1;
  options.all_reduces.tied = shape.tied;
  return proven(shape.schedule, options);
}

Program validation_program(const RunShape& shape, std::int64_t receives_ahead) {
  return proven(forward_only(shape.schedule), {.receives_ahead = receives_ahead});
}

ProgramShape program_shape(const RunShape& run, GroupId group) {
  ProgramShape shape{run.schedule.micro_batches, run.ranks, run.worker_groups(), group};
  shape.tied = run.tied;
  // What depends on memory or on the user's choices (canonical sums, scattering, parts) is set by the callers.
  shape.updates = run.updates();
  for (std::int64_t m = 0; m < run.schedule.micro_batches; ++m)
    shape.positions.push_back(run.position(group, MicroBatchId(m)));
  return shape;
}

ContinuousProgram continuous_program(const RunShape& shape, std::int64_t steps, const std::set<StageId>& recompute,
                                     const std::set<StageId>& offload) {
  LoweringOptions options{.recompute = recompute, .offload = offload};
  options.all_reduces.every_stage = shape.ranks.data_parallel > 1;
  ContinuousProgram run = lower_continuous(shape.schedule, steps, options);
  // One step may be valid alone but not after another, for example if an op needs weights that are dropped by then.
  require_valid(check(run.schedule), shape.schedule);
  require_valid(check(run.program, options.discipline), shape.schedule);
  return run;
}

}  // namespace chimera
