#include "fuzz/schedules.h"

#include <algorithm>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "fuzz/fuzzer.h"
#include "passes/lower.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "simulate/simulate.h"

namespace chimera::testing {
namespace {

/// A few bytes may claim 10^8 ops, which take too long to check.
constexpr std::int64_t kSmall = 4096;

Schedule from_csv(std::string_view text) { return schedule_from_csv(text, kSource).schedule; }

bool has_negative_ids(const Schedule& schedule) {
  const auto is_negative = [](const Op& op) {
    return op.stage.value() < 0 || op.micro_batch.value() < 0 || op.replica.value() < 0 || op.weight_version < 0;
  };
  return std::any_of(schedule.workers.begin(), schedule.workers.end(),
                     [&](const auto& ops) { return std::any_of(ops.begin(), ops.end(), is_negative); });
}

void require_same(Schedule back, const Schedule& schedule, const char* what) {
  if (back.name == "csv") back.name = schedule.name;  // plain CSV lacks the name
  require(back == schedule, what);
}

}  // namespace

void exercise_schedule(const Schedule& schedule) {
  require(schedule_from_json(to_json(schedule), kSource) == schedule, "JSON reads back");
  if (!has_negative_ids(schedule)) require_same(from_csv(to_csv(schedule)), schedule, "CSV reads back");
  if (schedule.stages * schedule.micro_batches > kSmall) return;
  if (!check(schedule).empty() || schedule.updates) return;
  for (const ChannelDiscipline discipline : {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair}) {
    const Program program = lower(schedule, {.discipline = discipline, .pairs = Pairs::Together});
    require(check(program, discipline).empty(), "a sound schedule's program cannot get stuck");
    require_same(from_csv(to_csv(schedule, program)), schedule, "CSV with messages reads back");
  }
  CostModel costs = CostModel::uniform(schedule, StageCosts{}, 0.25);
  costs.pair = 0.75;
  const Timeline timeline = simulate(schedule, costs);
  require(timeline.makespan >= timeline.lower_bound * (1 - 1e-9), "no makespan is below the bound");
}

}  // namespace chimera::testing
