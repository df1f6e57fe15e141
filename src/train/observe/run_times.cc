#include "train/observe/run_times.h"

#include <algorithm>

#include "telemetry/run_history.h"

namespace chimera {
namespace {

std::vector<OpTimes> gather(const OpTimes& times, const RankContext& self) {
  const std::vector<double> own = times.to_numbers();
  const auto size = static_cast<std::ptrdiff_t>(own.size());
  std::vector<double> all(own.size() * static_cast<std::size_t>(self.job.run.num_ranks()), 0);
  std::ranges::copy(own, all.begin() + size * self.rank.value());
  self.transport.all_sum(all);
  std::vector<OpTimes> ranks;
  for (auto part = all.begin(); part != all.end(); part += size)
    ranks.push_back(OpTimes::from_numbers({part, part + size}));
  return ranks;
}

}  // namespace

void RunTimes::note_step(const StepMetrics& metrics, bool is_warm_up) {
  used_memory_bytes_ = std::max(used_memory_bytes_, metrics.used_memory_bytes.value_or(0));
  if (is_warm_up) {
    update_seconds_ = 0;
  } else {
    step_seconds_.push_back(metrics.step_seconds);
  }
}

RunSummary RunTimes::summarize(const OpTimes& own, const RankContext& self) const {
  // Replicas measured the same ops; sums and counts over all workers give the mean.
  std::vector<double> numbers = own.to_numbers();
  const auto num_times = static_cast<std::ptrdiff_t>(numbers.size());
  numbers.resize(numbers.size() + static_cast<std::size_t>(self.job.run.num_ranks()), 0);
  numbers[static_cast<std::size_t>(num_times) + self.rank.index()] =
      update_seconds_ / static_cast<double>(std::max<std::size_t>(step_seconds_.size(), 1));
  self.transport.all_sum(numbers);
  RunSummary summary{.steps = static_cast<std::int64_t>(step_seconds_.size()),
                     .step_seconds = median_of(step_seconds_),
                     .optimizer_seconds = *std::max_element(numbers.begin() + num_times, numbers.end())};
  numbers.resize(static_cast<std::size_t>(num_times));
  summary.op_times = OpTimes::from_numbers(numbers);
  if (self.job.options.report_stragglers) summary.rank_op_times = gather(own, self);
  return summary;
}

}  // namespace chimera
