#include "train/setup/asynchronous.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"

namespace chimera {

void require_asynchronous(const JobShape& job) {
  const auto refuse = [&](const char* flag, const char* reason) {
    throw ConfigError(fmt::format("{}: schedule {} is asynchronous, {}", flag, job.schedule.name, reason));
  };
  if (job.options.reduction != ReductionOrder::Natural)
    refuse("--reduction canonical", "its updates depend on its order of ops");
  if (job.options.sync != AllReducePlacement::EagerOpt)
    refuse("--sync", "it sums gradients at its updates; leave the flag out");
  if (job.options.non_finite != NonFinite::Abort)
    refuse("--non-finite", "and has updated weights before it knows; leave the flag out");
  if (job.options.spike > 0) refuse("--spike", "and has updated weights before it knows; leave the flag out");
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

}  // namespace chimera
