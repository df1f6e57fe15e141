#include "train/observe/measured_step.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/mapped.h"
#include "model_config/footprint.h"
#include "model_config/parameters.h"
#include "passes/lower.h"
#include "runtime/worker_context.h"
#include "schedule/dependencies.h"
#include "simulate/explain.h"
#include "simulate/summary.h"
#include "telemetry/run_history.h"

// StepReader walks over each worker's program beside the times of its instructions: ops become TimedOps, sends and
// waits are kept until both ends of a message are known, and sums until the times of all members are known. The result
// is a Timeline like that of simulate(). The functions behind it reduce many such steps to a CostModel.

namespace chimera {
namespace {

struct MeasuredSum {
  double launched = 0;
  double awaited = 0;
  double done = 0;
  bool done_in_wait = true;
};

std::map<ParameterGroupId, MeasuredSum> sums_of(const JobShape& job, const RecordedStep& recorded, RankId in_lane,
                                                std::int64_t lane) {
  // A sum starts and is awaited at two instructions; its end is noted by the transport, or is the end of the wait.
  std::map<ParameterGroupId, MeasuredSum> sums;
  const auto& program = job.programs.training.workers[job.run.ranks.place(in_lane).worker.index()];
  // Programs are per worker, times per rank of the whole job.
  const RankId rank = job.ranks().rank(in_lane, lane);
  const auto& boundaries = recorded.boundaries[rank.index()];
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (!is_all_reduce(program[i].kind)) continue;
    MeasuredSum& sum = sums[program[i].group];
    if (program[i].kind == InstructionKind::StartAllReduce) sum.launched = boundaries[i];
    if (program[i].kind != InstructionKind::WaitAllReduce) continue;
    const double noted = recorded.all_reduce_ends[rank.index()][program[i].group.index()];
    sum.awaited = boundaries[i];
    sum.done_in_wait = noted == 0;
    sum.done = sum.done_in_wait ? boundaries[i + 1] : noted;
  }
  // A sum without a wait has not been recorded to its end.
  std::erase_if(sums, [](const auto& entry) { return entry.second.done == 0; });
  return sums;
}

class StepReader {
 public:
  StepReader(const JobShape& job, GroupId group, const RecordedStep& recorded, std::int64_t lane)
      : job_(job), recorded_(recorded), table_(job.run.schedule) {
    step_.step = recorded.step;
    step_.group = group;
    step_.lane = lane;
    step_.start = std::numeric_limits<double>::infinity();
    // Of all ranks, so that groups and lanes of one step have a common origin.
    for (const auto& boundaries : recorded.boundaries) step_.start = std::min(step_.start, boundaries.front());
    step_.timeline.workers.resize(job.run.schedule.workers.size());
  }

  MeasuredStep run() {
    // Sends and waits are in the programs of two workers, so messages are paired after all programs have been read.
    for (std::size_t w = 0; w < job_.run.schedule.workers.size(); ++w) read_worker(w);
    pair_messages();
    add_all_reduces();
    summarize_timeline();
    step_.explanation = explain_measured(job_.run.schedule, step_.timeline, messages_);
    for (std::size_t w = 0; w < step_.recomputations.size(); ++w) cut_bubbles(w);
    return std::move(step_);
  }

 private:
  [[nodiscard]] RankId in_lane(std::size_t worker) const {
    return job_.run.ranks.rank({step_.group, WorkerId(static_cast<std::int64_t>(worker))});
  }

  void read_worker(std::size_t w) {
    const auto& program = job_.programs.training.workers[w];
    const auto& boundaries = recorded_.boundaries[job_.ranks().rank(in_lane(w), step_.lane).index()];
    WorkerTimeline& timeline = step_.timeline.workers[w];
    auto& recomputations = step_.recomputations.emplace_back();
    for (std::size_t i = 0; i < program.size(); ++i) {
      // Ops of a pair begin together and end at the second op's boundary.
      const std::size_t last = begins_pair(program[i]) ? i + 1 : i;
      const TimedOp time{boundaries[i] - step_.start, boundaries[last + 1] - step_.start};
      const Op& op = program[i].op;
      switch (program[i].kind) {
        case InstructionKind::Compute: timeline.ops.push_back(time); break;
        case InstructionKind::Recompute: recomputations.push_back({forward_of(op), time}); break;
        case InstructionKind::StartSend: sent_[index(op)] = time.start; break;
        case InstructionKind::WaitReceive: awaited_[index(op)] = time; break;
        case InstructionKind::OptimizerStep:
          timeline.updates.push_back({timeline.ops.size(), time.start, time.end});
          break;
        default: break;
      }
    }
    // The last end of a worker's program, which includes the update and the last collective.
    step_.timeline.makespan = std::max(step_.timeline.makespan, boundaries.back() - step_.start);
  }

  [[nodiscard]] OpIndex index(const Op& op) const { return table_.find(op.kind, op.stage, op.micro_batch, op.slice); }
  [[nodiscard]] Place place(OpIndex op) const { return {table_.worker(op), op - table_.first(table_.worker(op))}; }

  void pair_messages() {
    for (const auto& [made, sent] : sent_) {
      const OpIndex consumer = table_.consumer(table_.op(made));
      // The receiver waits for what the sender has made, so both have the op that made it as key.
      const TimedOp& wait = awaited_.at(made);
      messages_.push_back({place(made), place(consumer), sent, wait.end});
      step_.transfers.push_back(
          {table_.op(made), table_.worker(made), table_.worker(consumer), sent, wait.start, wait.end});
    }
  }

  void add_all_reduces() {
    const auto groups = job_.run.rank_groups();
    std::vector<std::map<ParameterGroupId, MeasuredSum>> sums;  // [rank of the lane]
    for (std::int64_t r = 0; r < job_.run.num_ranks(); ++r)
      sums.push_back(sums_of(job_, recorded_, RankId(r), step_.lane));
    for (std::size_t w = 0; w < step_.timeline.workers.size(); ++w) {
      auto& own = step_.timeline.workers[w].all_reduces;
      step_.launched.emplace_back();
      for (const auto& [group, sum] : sums[in_lane(w).index()]) {
        // A sum over one rank moves nothing.
        if (groups[group.index()].size() < 2) continue;
        const double end = sum.done - step_.start;
        const double start = std::min(first_progress(group, groups[group.index()], sums) - step_.start, end);
        own.push_back({group, start, end});
        step_.launched.back().push_back({group, sum.launched - step_.start, end});
      }
      std::ranges::sort(own, {}, &TimedAllReduce::end);
    }
  }

  /// Returns when the members can have summed.
  static double first_progress(ParameterGroupId group, const std::vector<RankId>& members,
                               const std::vector<std::map<ParameterGroupId, MeasuredSum>>& sums) {
    // The data of all members exist once the last one has launched the sum. A transport that adds only inside wait()
    // cannot start before a member waits.
    double last_launch = -std::numeric_limits<double>::infinity();
    double first_wait = std::numeric_limits<double>::infinity();
    bool done_in_wait = true;
    for (const RankId member : members) {
      const MeasuredSum& sum = sums[member.index()].at(group);
      last_launch = std::max(last_launch, sum.launched);
      first_wait = std::min(first_wait, sum.awaited);
      done_in_wait = done_in_wait && sum.done_in_wait;
    }
    return done_in_wait ? std::max(last_launch, first_wait) : last_launch;
  }

  void summarize_timeline() {
    Timeline& timeline = step_.timeline;
    timeline.step_ends = {timeline.makespan};
    for (std::size_t w = 0; w < timeline.workers.size(); ++w)
      for (const auto& again : step_.recomputations[w]) timeline.workers[w].busy += again.time.end - again.time.start;
    count_peaks(job_.run.schedule, timeline);
    chimera::summarize_timeline(timeline);
  }

  /// Both lists ascend.
  void cut_bubbles(std::size_t worker) {
    std::vector<Bubble> cut;
    auto busy = step_.recomputations[worker].begin();
    const auto end = step_.recomputations[worker].end();
    // `busy` is not reset between bubbles, as both lists ascend: a recomputation that ends inside a bubble is done
    // with. What remains of the bubble before, between and after recomputations is idle time.
    for (Bubble bubble : step_.explanation.bubbles[worker]) {
      for (; busy != end && busy->time.start < bubble.end; ++busy) {
        if (busy->time.end <= bubble.start) continue;
        if (busy->time.start > bubble.start) {
          cut.push_back(bubble);
          cut.back().end = busy->time.start;
        }
        bubble.start = busy->time.end;
        if (bubble.start >= bubble.end) break;
      }
      if (bubble.start < bubble.end) cut.push_back(bubble);
    }
    step_.explanation.bubbles[worker] = std::move(cut);
  }

  const JobShape& job_;
  const RecordedStep& recorded_;
  OpTable table_;
  MeasuredStep step_;
  std::map<OpIndex, double> sent_;      // Producing op
  std::map<OpIndex, TimedOp> awaited_;  // Producing op; receiver's wait
  std::vector<Message> messages_;
};

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

template <class Visit>
void for_each_step(const std::vector<std::vector<MeasuredStep>>& steps, Visit&& visit) {
  for (const auto& groups : steps)
    for (const MeasuredStep& step : groups) visit(step);
}

double median_latency(const std::vector<std::vector<MeasuredStep>>& steps) {
  // Only a receiver that already waited shows the latency; others find the message in their buffer.
  std::vector<double> latencies;
  for_each_step(steps, [&](const MeasuredStep& step) {
    for (std::size_t i = 0; i < step.transfers.size(); ++i) {
      const Place& from = step.explanation.messages[i].from;
      const double made = step.timeline.workers[from.worker].ops[from.position].end;
      if (step.transfers[i].awaited < made) latencies.push_back(std::max(step.transfers[i].arrived - made, 0.0));
    }
  });
  return median_of(std::move(latencies));
}

/// Returns [stage] and, if tied, the matrix last: seconds from the last launch to the last end.
std::vector<double> all_reduce_seconds(const JobShape& job, const std::vector<std::vector<MeasuredStep>>& steps) {
  std::vector<std::vector<double>> measured(job.run.worker_groups().size());
  for (const auto& groups : steps) {
    std::vector<TimedAllReduce> sums(measured.size());
    for (const MeasuredStep& step : groups) {
      for (const WorkerTimeline& worker : step.timeline.workers) {
        for (const TimedAllReduce& sum : worker.all_reduces) {
          // A group's sum has ended when its last member has it.
          TimedAllReduce& longest = sums[sum.group.index()];
          if (sum.end > longest.end) longest = sum;
        }
      }
    }
    for (std::size_t s = 0; s < sums.size(); ++s) measured[s].push_back(sums[s].end - sums[s].start);
  }
  return mapped(measured, mean);
}

/// Returns [stage]: its share of its workers' updates.
std::vector<double> optimizer_seconds(const JobShape& job, const std::vector<std::vector<MeasuredStep>>& steps) {
  const auto groups = stage_groups(job.run.schedule.placement);
  const auto parameters = mapped(job.partition, [&](const StageLayers& layers) {
    return static_cast<double>(parameter_count(job.model, layers));
  });
  // One instruction updates all stages of a worker. Updates are limited by memory bandwidth, so a stage's share is its
  // share of the parameters.
  std::vector<double> held(job.run.schedule.workers.size());  // [worker]: parameters
  for (std::size_t s = 0; s < groups.size(); ++s)
    for (const WorkerId worker : groups[s]) held[worker.index()] += parameters[s];
  std::vector<double> seconds;
  for (std::size_t s = 0; s < groups.size(); ++s) {
    std::vector<double> shares;
    for_each_step(steps, [&](const MeasuredStep& step) {
      for (const WorkerId worker : groups[s])
        for (const TimedUpdate& update : step.timeline.workers[worker.index()].updates)
          shares.push_back((update.end - update.start) * parameters[s] / held[worker.index()]);
    });
    seconds.push_back(mean(shares));
  }
  return seconds;
}

}  // namespace

MeasuredStep measured_step(const JobShape& job, GroupId group, const RecordedStep& recorded, std::int64_t lane) {
  return StepReader(job, group, recorded, lane).run();
}

CostModel measured_op_costs(const JobShape& job, const OpTimes& times, double Duration::*clock) {
  // With backward halving, ops have half a micro-batch, but a cost model describes whole ones.
  const auto full = [&](const Duration& mean) { return mean.*clock / job.run.schedule.micro_batch_scale; };
  CostModel costs;
  bool recomputes = false;
  for (std::int64_t s = 0; s < times.num_stages(); ++s) {
    const auto of = [&](OpKind kind) { return full(times.mean(StageId(s), kind)); };
    costs.stages.push_back(
        {of(OpKind::Forward), of(OpKind::Backward), of(OpKind::BackwardInput), of(OpKind::BackwardWeight)});
    costs.recompute.push_back(full(times.mean_recomputation(StageId(s))));
    recomputes = recomputes || costs.recompute.back() > 0;
  }
  if (!job.factors.empty()) {
    for (RankId rank(0); rank.value() < job.num_ranks(); rank = RankId(rank.value() + 1))
      costs.workers.push_back(job.factors[job.launched_rank(rank).index()]);
    // A mean over slow and healthy workers becomes the time of a healthy one. Kinds are divided among workers alike.
    std::vector<std::pair<double, double>> ops(costs.stages.size());  // [stage]: number, sum of factors
    for (std::size_t w = 0; w < costs.workers.size(); ++w) {
      for (const Op& op : job.run.schedule.workers[w]) {
        ops[op.stage.index()].first += 1;
        ops[op.stage.index()].second += costs.workers[w];
      }
    }
    for (std::size_t s = 0; s < ops.size(); ++s) {
      const double share = ops[s].first / ops[s].second;
      for (auto time : kStageTimes) costs.stages[s].*time *= share;
      costs.recompute[s] *= share;
    }
  }
  if (!recomputes) costs.recompute.clear();
  // Pairs were measured together, so a pair takes no longer than its longer op.
  if (job.programs.pairs == Pairs::Together) costs.pair = 0;
  costs.slices = slice_costs(job);
  return costs;
}

SliceCosts slice_costs(const JobShape& job) {
  if (job.slice_bounds.empty()) return {};
  return {attention_share(job.model, job.slice_bounds.back()), as_fractions(job.slice_bounds)};
}

CostModel measured_costs(const JobShape& job, const OpTimes& times,
                         const std::vector<std::vector<MeasuredStep>>& steps) {
  CostModel costs = measured_op_costs(job, times, &Duration::wall_seconds);
  costs.latency = median_latency(steps);
  costs.optimizer = optimizer_seconds(job, steps);
  costs.buffers = {LoweringOptions().receives_ahead, LoweringOptions().sends_behind};
  const auto groups = job.run.rank_groups();
  if (std::ranges::any_of(groups, [](const auto& ranks) { return ranks.size() > 1; })) {
    auto& sums = costs.all_reduce.emplace();
    sums.seconds = all_reduce_seconds(job, steps);
    sums.tied = job.model.tied;
    sums.data_parallel = job.run.ranks.data_parallel;
    sums.every_stage = job.canonical.has_value();
  }
  costs.all_reduce_placement = job.programs.sync;
  return costs;
}

}  // namespace chimera
