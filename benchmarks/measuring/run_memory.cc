#include "measuring/run_memory.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/file_descriptor.h"
#include "engine/run_shape.h"
#include "model/make_stage.h"
#include "model_config/footprint.h"
#include "model_config/parameters.h"
#include "model_config/partition.h"
#include "runtime/executor.h"
#include "runtime/memory_meter.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "train/loop/trainer.h"
#include "train/observe/measured_step.h"
#include "train/observe/observation.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/rank_threads.h"
#include "transport/threads/thread_transport.h"

namespace chimera::benchmarks {
namespace {

std::map<StageId, std::unique_ptr<Stage>> stages_of(WorkerId worker, const WorkerGroups& groups,
                                                    const ModelConfig& model) {
  const auto num_stages = static_cast<std::int64_t>(groups.size());
  const auto partition = even_partition(model.layers, num_stages);
  std::map<StageId, std::unique_ptr<Stage>> stages;
  for (std::int64_t s = 0; s < num_stages; ++s) {
    const auto& group = groups[static_cast<std::size_t>(s)];
    if (!std::ranges::binary_search(group, worker)) continue;
    stages[StageId(s)] = make_stage(model, partition[static_cast<std::size_t>(s)], at::kFloat, initial_values_of(1));
  }
  return stages;
}

MicroBatch any_micro_batch(const BatchSize& size) {
  const at::Tensor tokens = at::ones({size.sequences, size.tokens}, at::kLong);
  return {.tokens = tokens, .targets = tokens};
}

class Connector {
 public:
  Connector(Exchange exchange, int ranks, RankGroups groups)
      : exchange_(exchange),
        ranks_(ranks),
        groups_(std::move(groups)),
        hub_(ranks, groups_),
        store_(make_memory_file("store", 0)) {}

  [[nodiscard]] std::unique_ptr<Transport> connect(RankId rank) {
    if (exchange_ == Exchange::ByReference) return hub_.transport(rank);
    return connect_gloo({.rank = static_cast<int>(rank.value()),
                         .world_size = ranks_,
                         .rendezvous = file_rendezvous("/proc/self/fd/" + std::to_string(store_.get())),
                         .groups = groups_});
  }
  /// Ends waiting ranks; Gloo detects closed peers.
  void close(const std::string& why) { hub_.close(why); }

 private:
  Exchange exchange_;
  int ranks_;
  RankGroups groups_;
  ThreadHub hub_;
  FileDescriptor store_;
};

}  // namespace

std::vector<StepMemory> measure_step_memory(const Schedule& schedule, const ModelConfig& model, const BatchSize& size,
                                            Exchange exchange, const LoweringOptions& lowering) {
  const Program program = lower(schedule, lowering);
  const WorkerGroups groups = stage_groups(schedule.placement);
  const std::size_t num_workers = schedule.workers.size();
  const StepHooks hooks{.load = [&](StageId, MicroBatchId) { return any_micro_batch(size); },
                        .update = {.all_stages = [](double) {}, .one_stage = [](StageId, MicroBatchId, double) {}}};
  const RankLayout ranks{.workers = static_cast<std::int64_t>(num_workers)};
  Connector connector(exchange, static_cast<int>(num_workers), ranks.ranks_of(groups));
  MemoryMeter meter(num_workers);
  std::vector<StepMemory> memory(num_workers);
  const auto run_rank = [&](RankId rank) {
    at::set_num_threads(1);
    const WorkerId worker = ranks.place(rank).worker;
    const auto stages = stages_of(worker, groups, model);
    const auto transport = connector.connect(rank);
    Executor executor(worker, borrow<Stage>(stages), *transport,
                      {{size.sequences, size.tokens, model.hidden}, at::kFloat},
                      {schedule.micro_batches / lowering.steps, ranks, groups});
    const MemoryMeter::Recording recording(meter, rank);
    static_cast<void>(executor.run(program.workers[worker.index()], hooks));
    const MemorySample used = meter.usage(rank);
    memory[worker.index()] = {used.peak, used.live};
  };
  const auto count = static_cast<int>(num_workers);
  const auto failure = RankThreads(count).run(count, run_rank, [&](const std::string& why) { connector.close(why); });
  if (failure) std::rethrow_exception(failure->error);
  return memory;
}

namespace {

/// [worker][boundary] of a single step.
using Samples = std::vector<std::vector<MemorySample>>;

struct Mean {
  double sum = 0;
  double count = 0;
  void add(double value) {
    sum += value;
    count += 1;
  }
  [[nodiscard]] double value() const { return count > 0 ? sum / count : 0; }
};

Samples share_samples(const Job& job, RankId rank, const std::vector<MemorySample>& own, Transport& transport) {
  Samples samples;
  for (std::size_t w = 0; w < job.programs.training.workers.size(); ++w) {
    std::vector<double> numbers(2 * (job.programs.training.workers[w].size() + 1), 0);
    if (job.run.ranks.place(rank) == GroupWorker{GroupId(0), WorkerId(static_cast<std::int64_t>(w))}) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        numbers[2 * i] = static_cast<double>(own[i].live);
        numbers[2 * i + 1] = static_cast<double>(own[i].peak);
      }
    }
    transport.all_sum(numbers);
    auto& of_worker = samples.emplace_back();
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      of_worker.push_back({static_cast<std::int64_t>(numbers[i]), static_cast<std::int64_t>(numbers[i + 1])});
    }
  }
  return samples;
}

template <class Visit>
void for_each_instruction(const Job& job, const Samples& samples, Visit&& visit) {
  for (std::size_t w = 0; w < samples.size(); ++w) {
    const auto& program = job.programs.training.workers[w];
    for (std::size_t i = 0; i < program.size(); ++i) visit(w, program[i], samples[w][i], samples[w][i + 1]);
  }
}

/// Returns bytes entering a stage.
double boundary_bytes(const Job& job, std::int64_t stage) {
  if (stage == 0 || stage == job.run.schedule.stages) return 0;
  const double elements = static_cast<double>(job.run.samples_per_op() * job.options.data.sequence * job.model.hidden);
  return elements * static_cast<double>(bytes_of(job.options.numbers.dtype));
}

/// Splits each worker's bytes between steps among its stages in proportion to parameters.
void add_kept(const Job& job, const Samples& samples, std::vector<StageMemory>& memory) {
  const auto groups = stage_groups(job.run.schedule.placement);
  std::vector<double> kept(samples.size());
  std::vector<double> parameters(samples.size(), 0);
  const auto count = [&](std::size_t s) { return static_cast<double>(parameter_count(job.model, job.partition[s])); };
  for (std::size_t w = 0; w < samples.size(); ++w) kept[w] = static_cast<double>(samples[w].front().live);
  for (std::size_t s = 0; s < groups.size(); ++s) {
    for (const WorkerId worker : groups[s]) parameters[worker.index()] += count(s);
  }
  const auto element = static_cast<double>(bytes_of(master_type(job.options.numbers.dtype)));
  for (std::size_t s = 0; s < groups.size(); ++s) {
    Mean bytes;
    for (const WorkerId worker : groups[s]) bytes.add(kept[worker.index()] * count(s) / parameters[worker.index()]);
    memory[s].weights = memory[s].gradients = element * count(s);
    memory[s].optimizer = std::max(bytes.value() - 2 * element * count(s), 0.0);
  }
}

/// Derives stage sizes from the memory changes of ops.
std::vector<StageMemory> measured_sizes(const Job& job, const Samples& samples) {
  const auto num_stages = static_cast<std::size_t>(job.run.schedule.stages);
  const bool recomputes = job.options.memory.recompute.rule != StageRule::None;
  std::vector<Mean> made(num_stages);        // kept by the forward or its recomputation
  std::vector<Mean> given_back(num_stages);  // freed by I
  for_each_instruction(job, samples,
                       [&](std::size_t, const Instruction& instruction, const auto& before, const auto& after) {
                         const auto change = static_cast<double>(after.live - before.live);
                         const std::size_t s = instruction.op.stage.index();
                         const bool is_compute = instruction.kind == InstructionKind::Compute;
                         const bool is_forward = is_compute && instruction.op.kind == OpKind::Forward && !recomputes;
                         if (is_forward || instruction.kind == InstructionKind::Recompute) made[s].add(change);
                         if (is_compute && instruction.op.kind == OpKind::BackwardInput) given_back[s].add(-change);
                       });
  std::vector<StageMemory> memory(num_stages);
  for (std::int64_t s = 0; s < job.run.schedule.stages; ++s) {
    StageMemory& stage = memory[static_cast<std::size_t>(s)];
    stage.boundary = boundary_bytes(job, s);
    stage.activations = made[static_cast<std::size_t>(s)].value() + stage.boundary;
    const Mean& input_gradient = given_back[static_cast<std::size_t>(s)];
    if (input_gradient.count == 0) continue;
    // I creates its input's gradient and frees its output's.
    stage.deferred = stage.activations - input_gradient.value() - stage.boundary + boundary_bytes(job, s + 1);
  }
  add_kept(job, samples, memory);
  for (StageMemory& stage : memory) {  // costs are per full micro-batch
    for (double* bytes : {&stage.boundary, &stage.activations}) *bytes /= job.run.schedule.micro_batch_scale;
    if (stage.deferred) *stage.deferred = std::max(*stage.deferred, 0.0) / job.run.schedule.micro_batch_scale;
  }
  return memory;
}

std::vector<StageFootprint> derived_sizes(const Job& job) {
  const double sequences = static_cast<double>(job.run.samples_per_op()) / job.run.schedule.micro_batch_scale;
  Workload workload = workload_of(job.options);
  workload.micro_batch_size = std::llround(sequences);
  workload.sequence = job.options.data.sequence;
  workload.dropout = job.options.model.dropout > 0;
  std::vector<StageFootprint> stages;
  for (const StageLayers& stage : job.partition) stages.push_back(stage_footprint(job.model, stage, workload));
  return stages;
}

double held_at(const std::vector<MemoryPoint>& points, double time) {
  const auto later = std::upper_bound(points.begin(), points.end(), time,
                                      [](double at, const MemoryPoint& point) { return at < point.time; });
  return later == points.begin() ? 0 : (later - 1)->amount;
}

/// Bytes that an op needs beyond the larger of before and after.
using WorkingSets = std::map<std::pair<StageId, OpKind>, double>;

WorkingSets measured_working_sets(const Job& job, const Samples& samples) {
  std::map<std::pair<StageId, OpKind>, Mean> means;
  for_each_instruction(job, samples,
                       [&](std::size_t, const Instruction& instruction, const auto& before, const auto& after) {
                         if (instruction.kind != InstructionKind::Compute) return;
                         means[{instruction.op.stage, instruction.op.kind}].add(
                             static_cast<double>(after.peak - std::max(before.live, after.live)));
                       });
  WorkingSets sets;
  for (const auto& [op, mean] : means) sets[op] = mean.value();
  return sets;
}

WorkingSets derived_working_sets(const Job& job, const std::vector<StageFootprint>& stages) {
  WorkingSets sets;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const OpKind kind : {OpKind::Forward, OpKind::Backward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
      sets[{StageId(static_cast<std::int64_t>(s)), kind}] =
          stages[s].working_set(kind) * job.run.schedule.micro_batch_scale;
    }
  }
  return sets;
}

std::vector<WorkerMemory> compared(const Job& job, const Samples& samples, const Timeline& timeline,
                                   const Explanation& explanation, const WorkingSets& sets) {
  std::vector<WorkerMemory> workers(samples.size());
  for_each_instruction(
      job, samples, [&](std::size_t w, const Instruction& instruction, const auto& before, const auto& after) {
        if (instruction.kind != InstructionKind::Compute) return;
        const double simulated = held_at(explanation.memory[w], timeline.workers[w].ops[workers[w].ops.size()].start);
        workers[w].ops.push_back({.op = instruction.op,
                                  .measured = static_cast<double>(std::max(before.live, after.live)),
                                  .simulated = simulated,
                                  .measured_peak = static_cast<double>(after.peak),
                                  .simulated_peak = simulated + sets.at({instruction.op.stage, instruction.op.kind})});
      });
  for (std::size_t w = 0; w < samples.size(); ++w) workers[w].kept = static_cast<double>(samples[w].front().live);
  return workers;
}

double deviation(const OpMemory& op) { return std::abs(op.measured - op.simulated) / op.simulated; }

}  // namespace

const OpMemory& WorkerMemory::worst() const { return *std::ranges::max_element(ops, {}, deviation); }

double WorkerMemory::largest_deviation() const { return deviation(worst()); }

double WorkerMemory::measured_peak() const {
  return std::ranges::max_element(ops, {}, &OpMemory::measured_peak)->measured_peak;
}

double WorkerMemory::simulated_peak() const {
  return std::ranges::max_element(ops, {}, &OpMemory::simulated_peak)->simulated_peak;
}

std::vector<WorkerMemory> compare_memory(const Job& job, RankId rank, Transport& transport, Sizes sizes) {
  MemoryMeter meter(1);
  const MemoryMeter::Recording recording(meter, RankId(0));
  Trainer trainer(job, rank, transport);
  trainer.trace(true, [&] { return meter.take_sample(RankId(0)); });
  const RunSummary run = trainer.run([](const StepMetrics&) {});
  const auto steps = measured_steps(job, gather_steps(job, job.options.device, rank, transport, *trainer.tracer()));
  const Samples samples = share_samples(job, rank, trainer.tracer()->steps().back()->memory, transport);
  CostModel costs = measured_costs(job, run.op_times, steps);
  WorkingSets working_sets;
  if (sizes == Sizes::Measured) {
    costs.memory = measured_sizes(job, samples);
    working_sets = measured_working_sets(job, samples);
  } else {
    const auto stages = derived_sizes(job);
    for (const StageFootprint& stage : stages) costs.memory.push_back(stage.memory);
    working_sets = derived_working_sets(job, stages);
  }
  const Timeline timeline = simulate(job.run.schedule, costs);
  return compared(job, samples, timeline, explain(job.run.schedule, costs, timeline), working_sets);
}

}  // namespace chimera::benchmarks
