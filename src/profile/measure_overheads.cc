#include "profile/measure_overheads.h"

#include <array>

#include "bench/statistics.h"
#include "engine/optimizer.h"
#include "generate/registry.h"
#include "passes/lower.h"
#include "runtime/executor.h"
#include "runtime/step_reduction.h"

namespace chimera {
namespace {

constexpr std::int64_t kPipeline = 2;
constexpr std::int64_t kMicroBatches = 64;
constexpr std::int64_t kHidden = TrivialStage::kHidden;

/// Does what the end of a training step does: norm, clipping, update, copies and zeroing.
double step_of_optimizer(Stage& stage, Optimizer& optimizer, std::int64_t threads) {
  const Stopwatch watch;
  double square = 0;
  for (const Parameter& parameter : stage.parameters()) square += sum_of_squares(parameter.value.grad());
  optimizer.step(1e-3, clip_factor(square + 4, 1));  // above the limit, to clip gradients
  stage.update_copies();
  stage.zero_gradients();
  return seconds_of(watch.elapsed(), threads);
}

/// Returns CPU time per op outside the ops.
double overhead_of_step(Executor& executor, const std::vector<Instruction>& instructions) {
  const StepHooks hooks{.load = [](StageId, MicroBatchId) { return MicroBatch{}; },
                        .update = {.all_stages = [](double) {}}};
  executor.forget_times();
  const Stopwatch watch;
  (void)executor.run(instructions, hooks);
  // Each worker of a pipeline of two stages runs a forward and a backward per micro-batch.
  const double step = watch.elapsed().cpu_seconds / (2 * kMicroBatches);
  double ops = 0;
  for (std::int64_t stage = 0; stage < kPipeline; ++stage) {
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward}) {
      // The worker has one of the stages; the other adds 0. Its ops are forwards and backwards, half each.
      ops += executor.op_times().mean(StageId(stage), kind).cpu_seconds / 2;
    }
  }
  return step - ops;
}

}  // namespace

double measure_optimizer(Lockstep& ranks, ParameterGroupId pair, Stage& stage, std::int64_t threads, double seconds) {
  const auto optimizer = make_optimizer(OptimizerOptions{}, stage.parameters());
  std::vector<double> times;
  ranks.repeat(seconds, [&](std::int64_t) {
    // As in training, gradients come from other cores' caches.
    if (ranks.rank() < kPipeline) (void)ranks.transport().start_all_reduce(pair, stage.gradients())->wait();
    if (ranks.computes()) times.push_back(step_of_optimizer(stage, *optimizer, threads));
  });
  double median = spread_of(times).median / static_cast<double>(num_elements(stage));
  ranks.average({&median, 1});
  return median;
}

double measure_op_overhead(Lockstep& ranks, ParameterGroupId pair, double seconds) {
  std::array<double, kPipeline> medians{};
  const Schedule schedule = find_generator(kPlainSchedule).generate({kPipeline, kMicroBatches});
  const Program program = lower(schedule);
  if (ranks.rank() >= kPipeline) {
    ranks.repeat(seconds, [](std::int64_t) {});  // takes part only in the decisions whether to go on
  } else {
    const WorkerId worker(ranks.rank());
    TrivialStage stage(worker == WorkerId(0), worker == WorkerId(1));
    // Only what a schedule without data parallelism needs.
    ProgramShape shape{kMicroBatches, {.workers = kPipeline}, stage_groups(schedule.placement)};
    shape.counts_cpu_time = true;
    SubgroupTransport transport(ranks.transport(), pair);
    Executor executor(worker, {{StageId(worker.value()), &stage}}, transport, {{1, 1, kHidden}, at::kFloat}, shape);
    std::vector<double> times;
    ranks.repeat(seconds,
                 [&](std::int64_t) { times.push_back(overhead_of_step(executor, program.workers[worker.index()])); });
    medians[worker.index()] = spread_of(times).median;
  }
  ranks.transport().all_sum(medians);
  // The slower worker determines the pace of a pipeline.
  return std::max(medians[0], medians[1]);
}

double measure_step_overhead(Lockstep& ranks) {
  constexpr int kSums = 100;
  std::vector<double> times;
  std::vector<double> values(32, 0);  // values of a small step
  for (int i = 0; i < kSums; ++i) {
    const double start = monotonic_seconds();
    ranks.transport().all_sum(values);
    times.push_back(monotonic_seconds() - start);
  }
  return spread_of(times).median;
}

}  // namespace chimera
