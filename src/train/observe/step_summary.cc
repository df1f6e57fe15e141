#include "train/observe/step_summary.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/counted.h"
#include "core/mapped.h"
#include "passes/unroll.h"
#include "simulate/simulate.h"
#include "train/observe/progress_report.h"

// The last lines of a run: how long a step took, and why not as long as predicted. Two predictions stand beside the
// measurement. The planned time comes from a machine profile, before the run. The simulated time comes from the
// measured mean of each op, after it. So planned against simulated shows slow ops above all, and simulated against
// measured shows what this simulation leaves out: messages, sums, waiting ranks.

namespace chimera {
namespace {

Timeline timed(const Schedule& schedule, const CostModel& costs) {
  // An asynchronous schedule has no end of a step, so its period comes from several steps in a row.
  const std::int64_t steps = steps_to_simulate(schedule);
  return steps == 1 ? simulate(schedule, costs) : simulate(unroll(schedule, steps), costs, {.steps = steps});
}

std::string compared(double seconds, double measured) {
  return fmt::format("{:.4f} s ({:+.1f} %)", seconds, 100 * (seconds / measured - 1));
}

std::string load_line(const RunSummary& run) {
  return run.others_share ? "  " + load_text(run.others_share, run.busiest_other) + "\n" : "";
}

std::string explain_difference(const JobShape& job, const PlannedTimes& times, const RunSummary& run,
                               const StepForecast& made, int cores) {
  constexpr double kLarge = 0.1;
  const double planned = times.step_seconds;
  // Without a plan, the parts explain the difference to the simulation, in which ops are as measured.
  const double reference = planned > 0 ? planned : made.step_seconds;
  const double difference = run.step_seconds - reference;
  const double ops = planned > 0 ? made.step_seconds - planned : 0;
  const double in_ops = made.step_seconds - run.optimizer_seconds;  // and bubbles, as simulated
  const double messages = run.compute_seconds + run.waits.messages - in_ops;
  const std::string text = fmt::format(
      "  measured - {} = {:+.4f} s: ops {:+.4f} s, messages {:+.4f} s, sums {:+.4f} s, slowest rank {:+.4f} s, rest "
      "{:+.4f} s\n",
      planned > 0 ? "planned" : "simulated", difference, ops, messages, run.waits.sums, run.waits.ranks,
      // "rest" is what remains, so that the parts always add up to the difference.
      difference - ops - messages - run.waits.sums - run.waits.ranks);
  if (difference <= kLarge * reference) return text + load_line(run);
  return text + fmt::format("  {}\n", fmt::join(slow_causes(analyze_speed(job, times, run, cores)), "\n  "));
}

SpeedParts parts_of(double step_seconds, double ops, const WaitTimes& waits, double updates) {
  const double rest = step_seconds - ops - waits.messages - waits.sums - waits.ranks - updates;
  return {.ops = ops,
          .messages = waits.messages,
          .sums = waits.sums,
          .ranks = waits.ranks,
          .updates = updates,
          .rest = std::max(0.0, rest)};
}

OpTotals op_totals_of(const OpTimes& times) {
  OpTotals totals;
  for (std::int64_t stage = 0; stage < times.num_stages(); ++stage) {
    for (int index = 0; index < kOpKinds; ++index) {
      const auto kind = static_cast<OpKind>(index);
      const double count = times.count(StageId(stage), kind);
      const Duration mean = times.mean(StageId(stage), kind);
      if (count > 0) totals[{stage, kind}] = {count * mean.wall_seconds, count, count * mean.cpu_seconds};
    }
  }
  return totals;
}

void add_ranks(const RunSummary& run, SpeedAnalysis& report) {
  const auto ops = mapped(run.ranks, [](const RankTimes& rank) { return op_totals_of(rank.op_times); });
  // Seconds of the whole run to seconds per step.
  const double share = 1 / static_cast<double>(run.steps);
  for (std::size_t r = 0; r < ops.size(); ++r) {
    const RankTimes& times = run.ranks[r];
    RankSpeed& rank = report.ranks.emplace_back();
    rank.rank = static_cast<int>(r);
    rank.elsewhere = share * seconds_elsewhere(ops, r);
    double seconds = 0;
    for (const auto& [key, op] : ops[r]) seconds += share * op.seconds;
    rank.parts = parts_of(run.step_seconds, seconds, times.waits, times.optimizer_seconds);
  }
}

}  // namespace

StepForecast forecast(const JobShape& job, const RunSummary& run, int cores) {
  // Ops that wait for a core look longer by the clock than they are, so their CPU time counts.
  const bool shares_cores = cores < job.local_ranks() && run.op_times.total(&Duration::cpu_seconds) > 0;
  const CostModel costs =
      measured_op_costs(job, run.op_times, shares_cores ? &Duration::cpu_seconds : &Duration::wall_seconds);
  const Timeline timeline = timed(job.run.schedule, costs);
  double work = 0;
  for (const WorkerTimeline& worker : timeline.workers) work += worker.busy;
  // Of all ranks in one step.
  work *= static_cast<double>(job.run.ranks.data_parallel * job.tensor_parallel) /
          static_cast<double>(steps_to_simulate(job.run.schedule));
  StepForecast made{.period = timeline.period, .bubble_ratio = timeline.bubble_ratio};
  // The work of this host's ranks, divided by its cores, is the least time in which they can take turns.
  const double share = static_cast<double>(job.local_ranks()) / static_cast<double>(job.num_ranks());
  if (shares_cores) made.turns = work * share / cores;  // Assumes equal hosts
  made.step_seconds = std::max(made.period, made.turns) + run.optimizer_seconds;
  return made;
}

std::string speed_summary(const JobShape& job, const TrainOptions& options, const RunSummary& run, int cores) {
  const StepForecast made = forecast(job, run, cores);
  std::string text = fmt::format("\nstep time: measured {:.4f} s (median); simulated {}", run.step_seconds,
                                 compared(made.step_seconds, run.step_seconds));
  const double planned = options.planned.step_seconds;
  if (planned > 0) text += "; planned " + compared(planned, run.step_seconds);
  text += fmt::format(
      "\n  `simulate` with the measured mean of every op: {} {:.4f} s, bubble ratio {:.2f};"
      " optimizer step {:.4f} s\n",
      job.run.schedule.updates ? "a step of several" : "makespan", made.period, made.bubble_ratio,
      run.optimizer_seconds);
  if (made.turns > 0) {
    text += fmt::format(
        "  {} ranks share {} here and take turns: ops are measured in core time, and the step takes at\n"
        "  least their sum over the cores, {:.4f} s\n",
        job.local_ranks(), counted(cores, "core"), made.turns);
  }
  // A graph of a whole step hides the times of its ops.
  text += options.numbers.cuda_graphs ? load_line(run) : explain_difference(job, options.planned, run, made, cores);
  if (run.used_memory_bytes > 0) {
    text += fmt::format("GPU memory: tensors {} at most; in use {} at most, by all of CUDA, NCCL and torch\n",
                        memory_text(run.peak_memory_bytes), memory_text(run.used_memory_bytes));
  }
  return text;
}

SpeedAnalysis analyze_speed(const JobShape& job, const PlannedTimes& planned, const RunSummary& run, int cores) {
  SpeedAnalysis report{.steps = run.steps,
                       .step_seconds = run.step_seconds,
                       .planned = planned.step_seconds,
                       .simulated = forecast(job, run, cores).step_seconds,
                       .others_share = run.others_share,
                       .busiest_other = run.busiest_other,
                       .profile = planned.by,
                       .parts = parts_of(run.step_seconds, run.compute_seconds, run.waits, run.optimizer_seconds),
                       .ops = means_of(op_totals_of(run.op_times), planned.ops)};
  add_ranks(run, report);
  return report;
}

}  // namespace chimera
