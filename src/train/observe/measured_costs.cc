#include "train/observe/measured_costs.h"

#include <algorithm>

#include "model_config/parameters.h"
#include "passes/lower.h"

namespace chimera {
namespace {

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

template <class Visit>
void for_each_step(const std::vector<std::vector<MeasuredStep>>& steps, Visit&& visit) {
  for (const auto& groups : steps) {
    for (const MeasuredStep& step : groups) visit(step);
  }
}

double median_latency(const std::vector<std::vector<MeasuredStep>>& steps) {
  std::vector<double> latencies;
  for_each_step(steps, [&](const MeasuredStep& step) {
    for (std::size_t i = 0; i < step.transfers.size(); ++i) {
      const Place& from = step.explanation.messages[i].from;
      const double made = step.timeline.workers[from.worker].ops[from.position].end;
      if (step.transfers[i].awaited < made) latencies.push_back(std::max(step.transfers[i].arrived - made, 0.0));
    }
  });
  if (latencies.empty()) return 0;
  const auto middle = latencies.begin() + static_cast<std::ptrdiff_t>(latencies.size() / 2);
  std::nth_element(latencies.begin(), middle, latencies.end());
  return *middle;
}

/// [stage], and of a tied model the matrix: from the last launch until the last member has the sum.
std::vector<double> all_reduce_seconds(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps) {
  std::vector<std::vector<double>> measured(job.worker_groups().size());
  for (const auto& groups : steps) {
    std::vector<TimedAllReduce> sums(measured.size());
    for (const MeasuredStep& step : groups) {
      for (const WorkerTimeline& worker : step.timeline.workers) {
        for (const TimedAllReduce& sum : worker.all_reduces) {
          TimedAllReduce& longest = sums[sum.group.index()];
          if (sum.end > longest.end) longest = sum;
        }
      }
    }
    for (std::size_t s = 0; s < sums.size(); ++s) measured[s].push_back(sums[s].end - sums[s].start);
  }
  std::vector<double> seconds;
  for (const auto& of_stage : measured) seconds.push_back(mean(of_stage));
  return seconds;
}

/// [stage]: its share of its workers' updates.
std::vector<double> optimizer_seconds(const Job& job, const std::vector<std::vector<MeasuredStep>>& steps) {
  const auto groups = stage_groups(job.schedule.placement);
  std::vector<double> parameters;
  for (const StageLayers& layers : job.partition)
    parameters.push_back(static_cast<double>(parameter_count(job.model, layers)));
  std::vector<double> held(job.schedule.workers.size());  // [worker]: parameters
  for (std::size_t s = 0; s < groups.size(); ++s) {
    for (const WorkerId worker : groups[s]) held[worker.index()] += parameters[s];
  }
  std::vector<double> seconds;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    std::vector<double> shares;
    for_each_step(steps, [&](const MeasuredStep& step) {
      for (const WorkerId worker : groups[s]) {
        for (const TimedUpdate& update : step.timeline.workers[worker.index()].updates)
          shares.push_back((update.end - update.start) * parameters[s] / held[worker.index()]);
      }
    });
    seconds.push_back(mean(shares));
  }
  return seconds;
}

}  // namespace

CostModel measured_op_costs(const Job& job, const OpTimes& times, double Duration::*clock) {
  // Costs are those of full micro-batches.
  const auto full = [&](const Duration& mean) { return mean.*clock / job.schedule.micro_batch_scale; };
  CostModel costs;
  bool recomputes = false;
  for (std::int64_t s = 0; s < times.num_stages(); ++s) {
    const auto of = [&](OpKind kind) { return full(times.mean(StageId(s), kind)); };
    costs.stages.push_back(
        {of(OpKind::Forward), of(OpKind::Backward), of(OpKind::BackwardInput), of(OpKind::BackwardWeight)});
    costs.recompute.push_back(full(times.mean_recomputation(StageId(s))));
    recomputes = recomputes || costs.recompute.back() > 0;
  }
  if (!recomputes) costs.recompute.clear();
  // Measured beside each other, the two of a pair take as long as the longer one.
  if (job.options.pairs == Pairs::Together) costs.pair = 0;
  return costs;
}

CostModel measured_costs(const Job& job, const OpTimes& times, const std::vector<std::vector<MeasuredStep>>& steps) {
  CostModel costs = measured_op_costs(job, times, &Duration::wall_seconds);
  costs.latency = median_latency(steps);
  costs.optimizer = optimizer_seconds(job, steps);
  costs.buffers = {LoweringOptions().receives_ahead, LoweringOptions().sends_behind};
  const auto groups = job.rank_groups();
  if (std::any_of(groups.begin(), groups.end(), [](const auto& ranks) { return ranks.size() > 1; })) {
    costs.all_reduce.emplace();
    costs.all_reduce->seconds = all_reduce_seconds(job, steps);
    if (job.model.tied) {
      costs.all_reduce->tied = costs.all_reduce->seconds.back();
      costs.all_reduce->seconds.pop_back();
    }
    costs.all_reduce->data_parallel = job.ranks.data_parallel;
    costs.all_reduce->every_stage = job.canonical.has_value();
  }
  costs.all_reduce_placement = job.options.sync;
  return costs;
}

}  // namespace chimera
