#include "train/observe/run_times.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/gather.h"
#include "telemetry/run_history.h"

namespace chimera {
void RunTimes::note_step(const StepMetrics& metrics, bool is_warm_up) {
  used_memory_bytes_ = std::max(used_memory_bytes_, metrics.used_memory_bytes.value_or(0));
  if (is_warm_up) {
    // Updates of the warm-up are dropped, and the load of other programs counts from its end.
    updates_.drop();
    update_seconds_ = 0;
    begin_ = sample_core_use();
  } else {
    step_seconds_.push_back(metrics.step_seconds);
  }
}

RunSummary RunTimes::summarize(const Executor& own, const RankContext& self) const {
  const auto steps = static_cast<double>(std::max<std::size_t>(step_seconds_.size(), 1));
  const std::int64_t ranks = self.job.num_ranks();
  const auto end = begin_ ? sample_core_use() : std::nullopt;
  std::vector<double> total = own.op_times().numbers();
  self.transport.all_sum(total);
  RunSummary summary{.steps = static_cast<std::int64_t>(step_seconds_.size()),
                     .step_seconds = median_of(step_seconds_)};
  // Replicas measured the same ops; sums and counts over all workers give the mean.
  summary.op_times = OpTimes(std::move(total));
  summary.compute_seconds = summary.op_times.total() / steps / static_cast<double>(ranks);
  const WaitTimes& waits = own.wait_times();
  const double cpu_seconds = end ? end->own_seconds - begin_->own_seconds : 0;
  double job_cpu_seconds = 0;
  // Updates: the slowest rank holds up all others. Waits: means, as a rank's wait is another's work.
  for (const auto& rank : gather({update_seconds_, waits.messages, waits.sums, waits.ranks, cpu_seconds},
                                 self.world_rank, ranks, self.transport)) {
    const double share = 1 / steps / static_cast<double>(ranks);
    summary.optimizer_seconds = std::max(summary.optimizer_seconds, rank[0] / steps);
    summary.waits.messages += share * rank[1];
    summary.waits.sums += share * rank[2];
    summary.waits.ranks += share * rank[3];
    job_cpu_seconds += rank[4];
    RankTimes& times = summary.ranks.emplace_back();
    times.optimizer_seconds = rank[0] / steps;
    times.waits = {rank[1] / steps, rank[2] / steps, rank[3] / steps};
  }
  // Thread ranks are one process. Ranks of other hosts use other cores.
  if (self.job.options.device.transport == TransportKind::Threads) job_cpu_seconds = cpu_seconds;
  if (end && self.job.local_ranks() == ranks) {
    summary.others_share = load_of_others(*begin_, *end, job_cpu_seconds);
    summary.busiest_other = busiest_other(*begin_, *end, ::getpid());
  }
  const auto op_times = gather(own.op_times().numbers(), self.world_rank, ranks, self.transport);
  for (std::size_t rank = 0; rank < op_times.size(); ++rank) summary.ranks[rank].op_times = OpTimes(op_times[rank]);
  return summary;
}

}  // namespace chimera
