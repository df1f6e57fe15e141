#include "train/setup/dry_run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <functional>

#include "core/cgroup.h"
#include "core/clock.h"
#include "core/printable.h"
#include "model_config/parameters.h"
#include "plan/predict.h"
#include "simulate/cost_table.h"
#include "train/setup/device.h"

// A forecast is the planner's prediction for a candidate that the job's options describe. Without a profile of
// --machine, machine_at() makes one up from the speed of a matrix product and assumed links, which is enough to show
// what fits and where workers wait.

namespace chimera {
namespace {

constexpr double kAssumedBandwidth = 4e9;  // Bytes/s of messages
constexpr double kAssumedLatency = 30e-6;  // Seconds per message between processes
// Seven times 4 bytes: weight and two moments are read and written, the gradient is read.
constexpr double kUpdatedBytes = 28;  // Read and written by AdamW per float32 parameter

double product_speed(at::ScalarType type, int threads) {
  constexpr std::int64_t kWidth = 512;
  constexpr int kProducts = 5;
  const at::NoGradGuard no_grad;
  at::set_num_threads(threads);
  const at::Tensor one = at::ones({kWidth, kWidth}, type);
  // Other programs only lengthen a product, so the shortest one is the speed of this machine.
  double shortest = 1e9;
  for (int i = 0; i < kProducts; ++i) {  // The first one starts the threads
    const double start = monotonic_seconds();
    static_cast<void>(at::matmul(one, one));
    shortest = std::min(shortest, monotonic_seconds() - start);
  }
  return 2.0 * kWidth * kWidth * kWidth / shortest;
}

PlanProblem problem_of(const JobShape& job, const TrainOptions& options, const MachineProfile& machine) {
  PlanProblem problem;
  problem.model = job.model;
  problem.machine = machine;
  problem.workers = job.num_ranks();
  problem.mini_batch = job.run.mini_batch();
  problem.memory_bytes = machine.memory_bytes;
  problem.workload = workload_of(options);
  problem.workload.cuts_tokens = job.cuts_tokens;
  problem.sync = options.schedule.sync;
  problem.shard_optimizer = options.memory.shard_optimizer;
  problem.second_shards = job.has_second_shards;
  return problem;
}

Candidate candidate_of(const JobShape& job, const TrainOptions& options) {
  Candidate candidate{.schedule = job.run.schedule.name,
                      .shape = options.schedule.shape,
                      .data_parallel = job.run.ranks.data_parallel,
                      .micro_batch_size = options.data.micro_batch_size,
                      .tensor_parallel = job.tensor_parallel,
                      .recompute = job.stages.recompute,
                      .offload = job.stages.offload,
                      .blocks = job.stages.blocks,
                      .offload_blocks = job.stages.offload_blocks,
                      .replica_layout = job.run.ranks.replicas};
  candidate.shape.micro_batches = job.run.schedule.micro_batches;
  return candidate;
}

/// Returns CostModel::pair. If both ops have cores, a pair takes as long as its longer op; the simulation models shared
/// cores.
double pair_time(const PlanProblem& problem) {
  const MachineProfile& machine = problem.machine;
  const std::int64_t ranks = std::min(problem.workers, machine.workers_per_node);
  return shares_cores(problem) || 2 * ranks * machine.threads <= machine.cores ? 0 : 1;
}

ReservedBytes reserved_by(const TrainOptions& options, std::int64_t ranks, const MachineProfile& machine) {
  return uses_gpu(options) ? reserved_of(options, ranks, machine.memory_bytes) : machine.reserved;
}

/// Adjusts the planner's stage model to options that its candidates lack.
StageModel model_of(const JobShape& job, const TrainOptions& options, const PlanProblem& problem,
                    const Candidate& candidate) {
  StageModel model = stage_model(problem, candidate, job.run.schedule, job.partition);
  model.costs.slices.bounds = as_fractions(job.slice_bounds);
  model.costs.buffers.receives_ahead = receives_ahead(options);
  if (options.schedule.pairs == Pairs::Together) model.costs.pair = pair_time(problem);
  model.reserved_bytes = reserved_by(options, problem.workers, problem.machine).all();
  if (model.costs.all_reduce) model.costs.all_reduce->every_stage = job.canonical.has_value();
  return model;
}

std::vector<std::vector<HeldStage>> held_stages(const RunShape& run) {
  std::vector<std::vector<HeldStage>> held(static_cast<std::size_t>(run.ranks.workers));
  const Placement& placement = run.schedule.placement;
  for (std::size_t r = 0; r < placement.num_replicas(); ++r) {
    const ReplicaId replica(static_cast<std::int64_t>(r));
    for (std::int64_t s = 0; s < run.schedule.stages; ++s)
      held[placement.worker(replica, StageId(s)).index()].push_back({replica, StageId(s)});
  }
  return held;
}

/// Stages of two replicas and a tied matrix count once.
void add_parameters(const JobShape& job, const StageModel& model, RankForecast& rank) {
  std::set<StageId> stages;
  for (const HeldStage& held : rank.stages) stages.insert(held.stage);
  for (const StageId stage : stages) {
    const StageMemory& memory = model.costs.memory[stage.index()];
    for (const ParameterSpec& parameter : stage_parameters(job.model, job.partition[stage.index()]))
      rank.parameters += held_elements(parameter, job.ranks().place(rank.rank));
    rank.weights_bytes += memory.weights;
    rank.gradients_bytes += memory.gradients;
    rank.optimizer_bytes += memory.optimizer;
  }
  // A worker of a bidirectional schedule may hold both ends, and then has the tied matrix once.
  const bool both_ends = stages.contains(StageId(0)) && stages.contains(StageId(job.run.schedule.stages - 1));
  if (job.model.tied && both_ends && job.run.schedule.stages > 1)
    rank.parameters -= held_elements(tied_parameter(job.model), job.ranks().place(rank.rank));
}

}  // namespace

std::string holders_text(const RankForecast& rank, const ReservedBytes& reserved) {
  const double state = rank.weights_bytes + rank.gradients_bytes + rank.optimizer_bytes;
  std::vector<std::pair<double, const char*>> parts = {
      {rank.peak_memory_bytes - reserved.all() - state, "activations and messages"},
      {rank.weights_bytes, "weights"},
      {rank.gradients_bytes, "gradients"},
      {rank.optimizer_bytes, "optimizer"},
      {reserved.all(), "CUDA, NCCL and a margin"}};
  std::ranges::sort(parts, std::greater<>());
  std::vector<std::string> texts;
  for (const auto& [bytes, what] : parts) texts.push_back(fmt::format("{} {}", what, bytes_text(bytes)));
  return fmt::format("by the plan, rank {} holds {}", rank.rank.value(), fmt::join(texts, ", "));
}

MachineProfile machine_at(double speed, const JobShape& job, const TrainOptions& options) {
  Workload workload = workload_of(options);
  workload.micro_batch_size = job.run.samples_per_op();
  MachineProfile machine;
  // A core for each rank, so that no op of the forecast waits for one.
  machine.cores = static_cast<int>(job.num_ranks());
  machine.threads = 1;
  machine.workers_per_node = job.num_ranks();
  for (const LayerKind kind : {LayerKind::Embedding, LayerKind::Block, LayerKind::Head}) {
    const LayerFootprint work = layer_footprint(job.model, kind, workload);
    machine.layers.push_back({kind,
                              job.model,
                              workload.sequence,
                              options.numbers.dtype,
                              {{.micro_batch_size = workload.micro_batch_size,
                                .forward = work.forward_flops / speed,
                                .input_gradient = work.input_gradient_flops / speed,
                                .weight_gradient = work.weight_gradient_flops / speed,
                                .recompute = work.forward_flops / speed}}});
  }
  const LinkTimes link{kAssumedLatency, 1 / kAssumedBandwidth};
  machine.point_to_point = machine.all_reduce = {link, link};
  machine.optimizer_seconds = kUpdatedBytes / kAssumedBandwidth;
  return machine;
}

MachineProfile assumed_machine(const JobShape& job, const TrainOptions& options, double speed) {
  const int threads = intra_op_threads(options, job.local_ranks());
  // A forecast without a profile needs one number of this machine. A matrix product takes most of a step.
  const double all = speed > 0 ? speed * threads : product_speed(scalar_type(options.numbers.dtype), threads);
  MachineProfile machine = machine_at(all, job, options);
  machine.name =
      fmt::format("this machine, at the {:.3g} GFLOP/s of a matrix product (--machine: a measured profile)", all / 1e9);
  machine.cores = available_cores();
  machine.threads = threads;
  machine.memory_bytes = available_memory_bytes() / static_cast<double>(job.num_ranks());
  return machine;
}

double Forecast::peak_bytes() const {
  return std::ranges::max_element(ranks, {}, &RankForecast::peak_memory_bytes)->peak_memory_bytes;
}

double Forecast::mean_bytes() const {
  double sum = 0;
  for (const RankForecast& rank : ranks) sum += rank.peak_memory_bytes;
  return sum / static_cast<double>(ranks.size());
}

Forecast forecast(const Job& job, const MachineProfile& given) {
  MachineProfile machine = given;
  if (job.options.numbers.cuda_graphs) machine.block_launch = 0;  // The device launches the step's kernels itself
  const PlanProblem problem = problem_of(job, job.options, machine);
  const Candidate candidate = candidate_of(job, job.options);
  const PlannedSchedule planned{std::make_shared<const Schedule>(job.run.schedule), job.partition,
                                model_of(job, job.options, problem, candidate)};
  const Prediction step = Predictor(problem).predict(planned, candidate);
  std::string source = machine.name;
  if (!candidate.offload.empty() && machine.host_bandwidth == 0)
    source += fmt::format(", {:g} GB/s to host memory (assumed)", kHostBandwidth / 1e9);
  Forecast result{.machine = source,
                  .step_seconds = step.step_seconds,
                  .bubble_ratio = step.bubble_ratio,
                  .memory_bytes = problem.memory_bytes,
                  .reserved = reserved_by(job.options, job.num_ranks(), machine),
                  .shared_cores = shares_cores(problem) ? machine.cores : 0,
                  .ranks = {}};
  const CostTable costs(job.run.schedule, planned.model.costs);
  const bool is_whole = job.run.schedule.slices == 1;  // Slices of a micro-batch have a time each
  for (std::int64_t stage = 0; is_whole && stage < job.run.schedule.stages; ++stage) {
    auto& seconds = result.op_seconds.emplace_back();
    for (std::size_t kind = 0; kind < kOpKinds; ++kind)
      seconds.push_back(costs.own_duration({static_cast<OpKind>(kind), ReplicaId(0), StageId(stage), MicroBatchId(0)}));
  }
  const auto held = held_stages(job.run);
  for (std::int64_t r = 0; r < job.num_ranks(); ++r) {
    RankForecast rank{.rank = RankId(r), .place = job.run.ranks.place(job.ranks().in_lane(RankId(r)))};
    const std::size_t worker = rank.place.worker.index();
    rank.stages = held[worker];
    add_parameters(job, planned.model, rank);
    rank.peak_memory_bytes = step.worker_bytes[worker];
    rank.compute_seconds = step.worker_busy[worker];
    rank.bubble_ratio = step.worker_bubble[worker];
    result.ranks.push_back(std::move(rank));
  }
  return result;
}

}  // namespace chimera
