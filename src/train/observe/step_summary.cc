#include "train/observe/step_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "passes/unroll.h"
#include "simulate/simulate.h"
#include "train/observe/progress_report.h"
#include "train/observe/stragglers.h"
#include "train/setup/device.h"

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

/// Times of ops on a device are those of launching them, so they explain nothing there.
std::string explain_difference(const Job& job, const RunSummary& run, const StepForecast& made, int cores) {
  constexpr double kLarge = 0.1;
  const std::string load = run.others_share ? "  " + load_text(run.others_share) + "\n" : "";
  if (uses_gpu(job.options)) return load;
  const double planned = job.options.planned_step_seconds;
  const double reference = planned > 0 ? planned : made.step_seconds;
  const double difference = run.step_seconds - reference;
  const double ops = planned > 0 ? made.step_seconds - planned : 0;
  const double in_ops = made.step_seconds - run.optimizer_seconds;  // and bubbles, as simulated
  const double messages = run.compute_seconds + run.waits.messages - in_ops;
  const std::string text = fmt::format(
      "  measured - {} = {:+.4f} s: ops {:+.4f} s, messages {:+.4f} s, sums {:+.4f} s, slowest rank {:+.4f} s, rest "
      "{:+.4f} s\n",
      planned > 0 ? "planned" : "simulated", difference, ops, messages, run.waits.sums, run.waits.ranks,
      difference - ops - messages - run.waits.sums - run.waits.ranks);
  if (difference <= kLarge * reference) return text + load;
  return text + fmt::format("  {}\n", fmt::join(slow_causes(analyze_speed(job, run, cores)), "\n  "));
}

}  // namespace

StepForecast forecast(const Job& job, const RunSummary& run, int cores) {
  const bool shares_cores = cores < job.local_ranks();
  const CostModel costs =
      measured_op_costs(job, run.op_times, shares_cores ? &Duration::cpu_seconds : &Duration::wall_seconds);
  const Timeline timeline = timed(job.run.schedule, costs);
  double work = 0;
  for (const WorkerTimeline& worker : timeline.workers) work += worker.busy;
  work *= static_cast<double>(job.run.ranks.data_parallel * job.options.tensor_parallel) /
          static_cast<double>(steps_to_simulate(job.run.schedule));
  StepForecast made{.period = timeline.period, .bubble_ratio = timeline.bubble_ratio};
  const double share = static_cast<double>(job.local_ranks()) / static_cast<double>(job.num_ranks());
  if (shares_cores) made.turns = work * share / cores;  // Assumes equal hosts
  made.step_seconds = std::max(made.period, made.turns) + run.optimizer_seconds;
  return made;
}

std::string speed_summary(const Job& job, const RunSummary& run, int cores) {
  const StepForecast made = forecast(job, run, cores);
  std::string text = fmt::format("\nstep time: measured {:.4f} s (median); simulated {}", run.step_seconds,
                                 compared(made.step_seconds, run.step_seconds));
  const double planned = job.options.planned_step_seconds;
  if (planned > 0) text += "; planned " + compared(planned, run.step_seconds);
  text += fmt::format(
      "\n  `simulate` with the measured mean of every op: {} {:.4f} s, bubble ratio {:.2f};"
      " optimizer step {:.4f} s\n",
      job.run.schedule.updates ? "a step of several" : "makespan", made.period, made.bubble_ratio,
      run.optimizer_seconds);
  if (made.turns > 0) {
    text += fmt::format(
        "  {} ranks share {} cores here and take turns: ops are measured in core time, and the step takes at\n"
        "  least their sum over the cores, {:.4f} s\n",
        job.local_ranks(), cores, made.turns);
  }
  text += explain_difference(job, run, made, cores);
  if (run.used_memory_bytes > 0) {
    text += fmt::format("GPU memory: tensors {} at most; in use {} at most, by all of CUDA, NCCL and torch\n",
                        memory_text(run.peak_memory_bytes), memory_text(run.used_memory_bytes));
  }
  return text;
}

SpeedAnalysis analyze_speed(const Job& job, const RunSummary& run, int cores) {
  SpeedAnalysis report{.steps = run.steps,
                       .step_seconds = run.step_seconds,
                       .planned = job.options.planned_step_seconds,
                       .simulated = forecast(job, run, cores).step_seconds,
                       .others_share = run.others_share,
                       .profile = job.options.planned_by,
                       .parts = {.ops = run.compute_seconds,
                                 .messages = run.waits.messages,
                                 .sums = run.waits.sums,
                                 .ranks = run.waits.ranks,
                                 .updates = run.optimizer_seconds}};
  SpeedParts& parts = report.parts;
  parts.rest = std::max(0.0, run.step_seconds - parts.ops - parts.messages - parts.sums - parts.ranks - parts.updates);
  for (std::int64_t stage = 0; stage < run.op_times.num_stages(); ++stage) {
    for (std::size_t index = 0; index < kOpKinds; ++index) {
      const auto kind = static_cast<OpKind>(index);
      if (run.op_times.count(StageId(stage), kind) == 0) continue;
      const auto& planned = job.options.planned_ops;
      const Duration mean = run.op_times.mean(StageId(stage), kind);
      report.ops.push_back({.kind = kind,
                            .stage = stage,
                            .seconds = mean.wall_seconds,
                            .planned = planned.empty() ? 0 : planned[static_cast<std::size_t>(stage)][index],
                            .cpu_seconds = mean.cpu_seconds});
    }
  }
  if (run.rank_op_times.empty()) return report;
  for (const RankComputeTime& pace : compute_times_of_ranks(run.rank_op_times, run.steps)) {
    report.ranks.push_back({.rank = static_cast<int>(pace.rank.value()),
                            .parts = {.ops = pace.seconds},
                            .elsewhere = pace.elsewhere.value_or(0)});
  }
  return report;
}

}  // namespace chimera
