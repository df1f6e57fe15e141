#include "fuzz/exercise.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "core/error.h"
#include "passes/lower.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "simulate/simulate.h"

namespace chimera::testing {
namespace {

/// A few bytes may claim 10^8 ops; checking so many takes longer than a fuzzer likes.
constexpr std::int64_t kSmall = 4096;

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

template <class Read>
std::optional<Schedule> read_or_refuse(Read read) {
  try {
    return read();
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    require(message.starts_with("text: "), "a refusal names the text");
    require(message.find('\n') == message.npos, "a refusal is one line");
    require(message.size() < 1000, "a refusal is short");
    return std::nullopt;
  }
}

Schedule from_csv(std::string_view text) {
  TextSource source(text, "text");
  return schedule_from_csv(source).schedule;
}

bool has_negative_ids(const Schedule& schedule) {
  const auto is_negative = [](const Op& op) {
    return op.stage.value() < 0 || op.micro_batch.value() < 0 || op.replica.value() < 0 || op.weight_version < 0;
  };
  return std::any_of(schedule.workers.begin(), schedule.workers.end(),
                     [&](const auto& ops) { return std::any_of(ops.begin(), ops.end(), is_negative); });
}

void require_same(Schedule back, const Schedule& schedule, const char* what) {
  if (back.name == "csv") back.name = schedule.name;  // plain CSV does not say it
  require(back == schedule, what);
}

void exercise(const Schedule& schedule) {
  require(schedule_from_json(to_json(schedule), "text") == schedule, "JSON reads back");
  if (!has_negative_ids(schedule)) require_same(from_csv(to_csv(schedule)), schedule, "CSV reads back");
  if (schedule.stages * schedule.micro_batches > kSmall) return;
  if (!check(schedule).empty() || schedule.updates) return;
  for (const ChannelDiscipline discipline : {ChannelDiscipline::PerDirection, ChannelDiscipline::SerialPair}) {
    const Program program = lower(schedule, {.discipline = discipline});
    require(check(program, discipline).empty(), "a sound schedule's program cannot get stuck");
    require_same(from_csv(to_csv(schedule, program)), schedule, "CSV with messages reads back");
  }
  const Timeline timeline = simulate(schedule, CostModel::uniform(schedule, StageCosts{}, 0.25));
  require(timeline.makespan >= timeline.lower_bound * (1 - 1e-9), "no makespan is below the bound");
}

}  // namespace

void exercise_json(std::string_view text) {
  const auto schedule = read_or_refuse([&] { return schedule_from_json(text, "text"); });
  if (schedule) exercise(*schedule);
}

void exercise_csv(std::string_view text) {
  const auto schedule = read_or_refuse([&] { return from_csv(text); });
  if (schedule) exercise(*schedule);
}

}  // namespace chimera::testing
