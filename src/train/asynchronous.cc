#include "train/asynchronous.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "check/check_program.h"
#include "check/check_schedule.h"
#include "core/error.h"

namespace chimera {
namespace {

void require_valid(const std::vector<Violation>& violations, const Job& job) {
  if (violations.empty()) return;
  throw ConfigError(
      fmt::format("schedule {}, several steps in a row: {}", job.schedule.name, violations.front().message));
}

}  // namespace

void require_asynchronous(const Job& job) {
  const auto refuse = [&](const char* flag, const char* reason) {
    throw ConfigError(fmt::format("{}: schedule {} is asynchronous, {}", flag, job.schedule.name, reason));
  };
  if (job.options.reduction != ReductionOrder::Natural)
    refuse("--reduction canonical", "its updates depend on its order of ops");
  if (job.options.sync != AllReducePlacement::EagerOpt)
    refuse("--sync", "it sums gradients at its updates; leave the flag out");
  if (job.options.shard_optimizer) refuse("--shard-optimizer", "and each worker makes its updates alone");
  if (job.options.device != DeviceKind::Cpu)
    refuse("--device cuda", "and such schedules run on CPUs alone; use --device cpu");
  if (job.options.dtype == DataType::BFloat16) refuse("--dtype bfloat16", "and its versions are float32 or float64");
  if (job.options.observes()) refuse("--trace, --op-times and --timeline", "and its steps overlap; leave them out");
  if (job.model.tied) refuse("--tied true", "which would update the matrix in two places apart; use --tied false");
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (job.options.steps > most / job.schedule.micro_batches) {
    throw ConfigError(fmt::format("--steps {}: at most {} steps of {} micro-batches run by an asynchronous schedule",
                                  job.options.steps, most / job.schedule.micro_batches, job.schedule.micro_batches));
  }
}

std::map<std::int64_t, Stream> lower_runs(const Job& job, const LoweringOptions& options) {
  std::map<std::int64_t, Stream> runs;
  for (const std::int64_t step : {std::int64_t{0}, job.options.steps - 1}) {
    const std::int64_t steps = job.run_of(step).steps;
    if (runs.contains(steps)) continue;
    const Stream& run = runs.emplace(steps, lower_stream(job.schedule, steps, options)).first->second;
    require_valid(check(run.schedule), job);
    require_valid(check(run.program, ChannelDiscipline::PerDirection), job);
  }
  return runs;
}

}  // namespace chimera
