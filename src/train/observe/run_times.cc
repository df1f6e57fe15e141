#include "train/observe/run_times.h"

#include <algorithm>
#include <utility>

#include "runtime/gather.h"
#include "telemetry/run_history.h"

namespace chimera {
void RunTimes::note_step(const StepMetrics& metrics, bool is_warm_up) {
  used_memory_bytes_ = std::max(used_memory_bytes_, metrics.used_memory_bytes.value_or(0));
  if (is_warm_up) {
    update_seconds_ = 0;
  } else {
    step_seconds_.push_back(metrics.step_seconds);
  }
}

RunSummary RunTimes::summarize(const OpTimes& own, const RankContext& self) const {
  const auto steps = static_cast<double>(std::max<std::size_t>(step_seconds_.size(), 1));
  std::vector<double> total = own.numbers();
  self.transport.all_sum(total);
  RunSummary summary{.steps = static_cast<std::int64_t>(step_seconds_.size()),
                     .step_seconds = median_of(step_seconds_)};
  // Replicas measured the same ops; sums and counts over all workers give the mean.
  summary.op_times = OpTimes(std::move(total));
  const std::int64_t ranks = self.job.run.num_ranks();
  for (const auto& updates : gather({update_seconds_ / steps}, self.rank, ranks, self.transport)) {
    summary.optimizer_seconds = std::max(summary.optimizer_seconds, updates.front());
  }
  if (!self.job.options.report_stragglers) return summary;
  for (const auto& times : gather(own.numbers(), self.rank, ranks, self.transport)) {
    summary.rank_op_times.emplace_back(times);
  }
  return summary;
}

}  // namespace chimera
