#include "plan/predict.h"

#include <fmt/format.h>
#include <algorithm>
#include <limits>
#include <map>

#include "generate/registry.h"
#include "passes/unroll.h"
#include "plan/balance.h"
#include "plan/layer_times.h"
#include "plan/worker_memory.h"
#include "simulate/explain.h"
#include "simulate/lower_bound.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

constexpr std::int64_t kMaxKeptOps = std::int64_t{1} << 23;
constexpr double kRounding = 1 - 1e-9;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// A step, or several if no flush separates them.
struct Run {
  std::shared_ptr<const Schedule> schedule;
  std::int64_t steps = 1;
};

Run run_of(const std::shared_ptr<const Schedule>& schedule) {
  const std::int64_t steps = steps_to_simulate(*schedule);
  if (steps == 1) return {schedule, 1};
  // An asynchronous schedule has no end of a step; its period shows only after several steps.
  return {std::make_shared<const Schedule>(unroll(*schedule, steps)), steps};
}

/// Returns a node's cores per group, in units of a worker's threads. On one machine, all W groups share them.
double cores_of(const PlanProblem& problem, const Candidate& candidate, const NodePlacement& nodes) {
  const MachineProfile& machine = problem.machine;
  const std::int64_t threads = candidate.tensor_parallel * machine.threads;
  // The simulation has one group; the others take their part of the cores.
  const std::int64_t groups = nodes.node_of.empty() ? candidate.data_parallel : 1;
  return static_cast<double>(machine.cores) / static_cast<double>(threads * groups);
}

/// The result is in units of a worker's cores.
double cores_of_group(const PlanProblem& problem, const Candidate& candidate) {
  const MachineProfile& machine = problem.machine;
  const double nodes = static_cast<double>(problem.workers) / static_cast<double>(machine.workers_per_node);
  return static_cast<double>(machine.cores) * std::max(1.0, nodes) /
         static_cast<double>(candidate.data_parallel * candidate.tensor_parallel * machine.threads);
}

/// Stage times are those of the slowest core while all compute; an op that runs alone takes the mean of cores.
double idle_gain_on_own_cores(const MachineProfile& machine, double cores) {
  constexpr double kMax = 0.99;
  const double idle = idle_share(1, cores);
  if (idle == 0) return 0;
  // idle_gain saves a share of an op's time in proportion to idle cores. Solve for the gain at which a lone op takes
  // `alone`.
  const double alone = (1 - machine.contention.idle_gain * idle) / (1 + machine.core_imbalance);
  return std::min(kMax, (1 - alone) / idle);
}

/// Cores and links that slow workers down on the problem's machine; by default, nothing does.
SharedCores shared_cores(const PlanProblem& problem, const Candidate& candidate, const StageModel& model) {
  const MachineProfile& machine = problem.machine;
  SharedCores cores{.nodes = model.nodes};
  if (shares_cores(problem)) {
    cores.cores = cores_of(problem, candidate, model.nodes);
    cores.all_reduce_share = model.computing_share_of_sums;
    cores.switching = machine.core_sharing;
    cores.contention.node_transfers = machine.contention.node_transfers;
    cores.contention.idle_gain = machine.contention.idle_gain;
  } else if (machine.contention.any()) {
    cores.contention = machine.contention;
    if (machine.cores > 0) {
      cores.cores = cores_of(problem, candidate, model.nodes);
      cores.all_reduce_share = 0;  // cores suffice for all-reduces, too
      if (problem.workers > 1) cores.contention.idle_gain = idle_gain_on_own_cores(machine, cores.cores);
    }
  }
  return cores;
}

Timeline timeline_of(const Run& run, const StageModel& model, const SharedCores& cores) {
  return simulate(*run.schedule, model.costs, {.steps = run.steps, .cores = cores});
}

/// Returns the time of a micro-batch through all layers and back, on the T workers that share these and without
/// waiting.
double pass_seconds(const PlanProblem& problem, const Candidate& candidate) {
  Workload workload = problem.workload;
  workload.micro_batch_size = candidate.micro_batch_size;
  workload.slices = candidate.shape.slices;
  double pass = 0;
  for (const OwnLayer& layer : problem.layers)
    pass += interpolate_time(layer.times, static_cast<double>(candidate.micro_batch_size)).whole();
  if (!problem.layers.empty()) return pass;
  for (int kind = 0; kind < kLayerKinds; ++kind) {
    const auto layer = static_cast<LayerKind>(kind);
    const std::int64_t count = candidate.tensor_parallel;
    const double seconds = split_layer_time(problem.machine, problem.model, layer, workload, count).whole() +
                           tensor_sums(problem.machine, problem.model, layer, workload, count).whole();
    const bool is_block = layer == LayerKind::Block;
    pass += seconds * (is_block ? static_cast<double>(problem.model.layers) : 1);
  }
  return pass;
}

/// `pass`: pass_seconds().
double least_seconds(const PlanProblem& problem, const Candidate& candidate, double pass) {
  const double cores = problem.machine.cores > 0 ? cores_of_group(problem, candidate) : kNoLimit;
  const auto beside = [&](double ops) { return 1 - problem.machine.contention.idle_gain * idle_share(ops, cores); };
  // All work of a step, perfectly divided over the workers that can compute at once.
  const double workers = std::min(static_cast<double>(candidate.shape.stages), cores);
  double least = beside(workers) * pass * static_cast<double>(candidate.shape.micro_batches) / workers;
  // A step that flushes contains at least one micro-batch from end to end. Slices and halved micro-batches overlap
  // within.
  const bool flushes = find_generator(candidate.schedule).synchronous;
  if (flushes && candidate.shape.slices == 1 && candidate.shape.scale != ScaleMethod::Halving)
    least = std::max(least, beside(1) * pass);
  return least + problem.machine.step_overhead;
}

}  // namespace

PlannedSchedule Predictor::prepare(const Candidate& candidate) {
  PlannedSchedule planned;
  planned.schedule = schedule_of(candidate);
  planned.paper = paper_model(find_generator(candidate.schedule), candidate.shape);
  // The model follows the partition, which for `balanced` follows the schedule.
  planned.partition = resolve_partition(candidate.partition, {.schedule = *planned.schedule,
                                                              .model = problem_.model,
                                                              .workload = problem_.workload,
                                                              .recompute = !candidate.recompute.empty()});
  set_levels(planned.partition, candidate.blocks);
  set_on_device(planned.partition, candidate.offload_blocks);
  planned.model = stage_model(problem_, candidate, *planned.schedule, planned.partition);
  return planned;
}

std::shared_ptr<const Schedule> Predictor::schedule_of(const Candidate& candidate) {
  const PipelineShape& shape = candidate.shape;
  std::string key = fmt::format("{} {} {}", candidate.schedule, shape.stages, shape.micro_batches);
  for (const ShapeAxis& axis : shape_axes()) key += fmt::format(" {}", axis.get(shape));
  const auto known = schedules_.find(key);
  if (known != schedules_.end()) return known->second;
  auto schedule = std::make_shared<const Schedule>(find_generator(candidate.schedule).generate(shape));
  // The cache is cleared as a whole: neighboring candidates share a schedule, old ones hardly return.
  kept_ops_ += num_ops(*schedule);
  if (kept_ops_ > kMaxKeptOps) {
    schedules_.clear();
    kept_ops_ = num_ops(*schedule);
  }
  schedules_.emplace(key, schedule);
  return schedule;
}

double Predictor::step_seconds(const PlannedSchedule& planned, const Candidate& candidate, bool on_own_cores) const {
  const SharedCores cores = on_own_cores ? SharedCores{} : shared_cores(problem_, candidate, planned.model);
  return timeline_of(run_of(planned.schedule), planned.model, cores).period + planned.model.step_seconds;
}

Prediction Predictor::predict(const PlannedSchedule& planned, const Candidate& candidate) const {
  return *predict_below(kNoLimit, planned, candidate);
}

std::optional<Prediction> Predictor::predict_below(double seconds, const PlannedSchedule& planned,
                                                   const Candidate& candidate) const {
  const CostModel& costs = planned.model.costs;
  const Run run = run_of(planned.schedule);
  const SharedCores cores = shared_cores(problem_, candidate, planned.model);
  // Cores that help each other shorten ops, so the bound does not hold.
  if (seconds < kNoLimit && run.steps == 1 && cores.contention.idle_gain == 0) {
    const double least = lower_bound(*run.schedule, CostTable(*run.schedule, costs)) + planned.model.step_seconds;
    if (kRounding * least >= seconds) return std::nullopt;
  }
  const Timeline timeline = timeline_of(run, planned.model, cores);
  Prediction prediction;
  prediction.step_seconds = timeline.period + planned.model.step_seconds;
  // Before explain(), which a candidate that is too slow does not need.
  if (prediction.step_seconds >= seconds) return std::nullopt;
  const Explanation explanation = explain(*run.schedule, costs, timeline);
  prediction.sequences_per_second = static_cast<double>(problem_.mini_batch) / prediction.step_seconds;
  prediction.bubble_ratio = timeline.bubble_ratio;
  prediction.worker_bytes = worker_peaks(*run.schedule, planned.model, timeline, explanation);
  prediction.peak_memory_bytes = *std::ranges::max_element(prediction.worker_bytes);
  prediction.fits = prediction.peak_memory_bytes <= problem_.memory_bytes;
  // Numbers are per worker and step. An asynchronous run covers several steps.
  const double shares = static_cast<double>(timeline.workers.size()) * static_cast<double>(run.steps);
  for (const WorkerTimeline& worker : timeline.workers) {
    prediction.busy_seconds += worker.busy / shares;
    prediction.worker_busy.push_back(worker.busy / static_cast<double>(run.steps));
    prediction.worker_bubble.push_back(timeline.makespan > 0 ? worker.idle / timeline.makespan : 0);
  }
  prediction.idle_seconds = idle_by_cause(explanation.bubbles);
  for (double& idle : prediction.idle_seconds) idle /= shares;
  if (planned.paper != nullptr)
    prediction.paper = equation_one(*planned.paper, *planned.schedule, candidate.shape, costs);
  return prediction;
}

std::vector<double> least_step_seconds(const PlanProblem& problem, const std::vector<Candidate>& candidates) {
  std::map<std::array<std::int64_t, 3>, double> passes;
  std::vector<double> bounds;
  for (const Candidate& each : candidates) {
    // Thousands of candidates differ only in schedule and shape.
    const auto [place, is_new] = passes.try_emplace({each.micro_batch_size, each.shape.slices, each.tensor_parallel});
    if (is_new) place->second = pass_seconds(problem, each);
    bounds.push_back(least_seconds(problem, each, place->second));
  }
  return bounds;
}

}  // namespace chimera
