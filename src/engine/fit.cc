#include "engine/fit.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/ScopeExit.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <numeric>
#include <sstream>

#include "core/cgroup.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/resident_memory.h"
#include "engine/canonical.h"
#include "engine/programs.h"
#include "model_config/partition.h"
#include "runtime/gather.h"
#include "transport/threads/rank_threads.h"

// prepare_fit() does what needs no tensors: schedule, program, checks. The constructor of RankFit makes the stages,
// gives all copies of a stage the same values, and runs one forward through the whole model to find the shapes of
// messages. train_step() and validation_loss() then run programs like those of `chimera train`. Everything that ranks
// must agree on goes through the transport, also if ranks are threads, so that C++ and Python share this code.

namespace chimera {
namespace {

void require(bool fits, const char* what) {
  if (!fits) throw ConfigError(what);
}

void require_possible(const FitRun& run) {
  const FitOptions& options = run.options;
  require(!run.model.layers.empty(), "Model::layers: a model needs at least one layer");
  require(run.model.loss.sum && run.model.loss.count, "Model::loss: needs both of its functions");
  require(static_cast<bool>(run.data), "Data: needs a function that gives batches");
  require(options.data_parallel >= 1, "FitOptions::data_parallel must be at least 1");
  require(options.micro_batch_size >= 1, "FitOptions::micro_batch_size must be at least 1");
  require(options.steps >= 1, "FitOptions::steps must be at least 1");
  require(options.learning_rate.warmup >= 0, "FitOptions::learning_rate.warmup must be at least 0");
  require(options.reduction_blocks >= 0, "FitOptions::reduction_blocks must be at least 0");
  require(options.threads >= 0, "FitOptions::threads must be at least 0");
  for (const std::string& fault :
       {find_invalid_option(options.learning_rate, options.steps), find_invalid_option(options.optimizer)})
    if (!fault.empty()) throw ConfigError("FitOptions: " + fault);
  require(options.optimizer.kind != OptimizerKind::Muon,
          "FitOptions::optimizer: muon needs the blocks of a known model; use adamw, sgd or lamb");
}

RunRequest request_of(const FitOptions& options) {
  return {.schedule = {options.schedule, options.shape,
                       options.own_schedule ? std::make_shared<const Schedule>(*options.own_schedule) : nullptr},
          .data_parallel = options.data_parallel,
          .micro_batch_size = options.micro_batch_size};
}

void require_trainable(const FitRun& run) {
  if (run.schedule.updates) {
    reject("schedule {}: asynchronous schedules cannot train a user's model; choose a schedule with a flush",
           run.schedule.name);
  }
  if (run.schedule.slices > 1) {
    reject(
        "schedule {} has {} slices: a user's modules may attend to later tokens, so their micro-batches are not cut; "
        "choose a schedule with whole micro-batches",
        run.schedule.name, run.schedule.slices);
  }
  require_whole_micro_batches(run, "FitOptions::micro_batch_size");
}

std::vector<std::int64_t> partition_ends(const FitRun& run) {
  const auto layers = static_cast<std::int64_t>(run.model.layers.size());
  const auto& counts = run.options.partition;
  // Without a choice, layers are divided by number: the cost of a user's layers is unknown.
  if (counts.empty()) return mapped(even_partition(layers, run.schedule.stages), &StageLayers::end_layer);
  const bool positive = std::ranges::all_of(counts, [](std::int64_t count) { return count > 0; });
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (!positive || total != layers || static_cast<std::int64_t>(counts.size()) != run.schedule.stages) {
    reject("FitOptions::partition [{}] must be {} positive numbers that add up to {} layers", fmt::join(counts, ", "),
           run.schedule.stages, layers);
  }
  std::vector<std::int64_t> ends(counts.size());
  std::partial_sum(counts.begin(), counts.end(), ends.begin());
  return ends;
}

/// Refuses choices about blocks, because a user's modules may have none, and `auto`, because their memory is unknown.
std::set<StageId> recomputed_stages(const StageChoice& choice, std::int64_t stages) {
  if (choice.counts_blocks()) {
    reject(
        "recompute {}: only GPT-2, BERT and Llama models have it, not modules of your own; use none, full, or "
        "stages of 0 to {} such as 0,1",
        to_text(choice), stages - 1);
  }
  return resolve_stages(choice, {.name = "recompute", .rules = {"none", "full"}}, stages, {});
}

/// Returns the layout of the only rank where it is not empty.
MessageLayout on_all_ranks(const MessageLayout& own, const FitRun& run, RankId rank, Transport& transport) {
  auto shapes = nlohmann::json::array();
  for (const TensorShape& shape : own) {
    // Ranks run the same torch, so the number of a type means the same on each.
    shapes.push_back({static_cast<int>(shape.dtype), shape.has_gradient, shape.sizes});
  }
  MessageLayout layout;
  const std::string text_of_own = own.empty() ? "" : json_text(shapes);  // The last stage has none, and needs no sum
  for (const std::string& text : gather_texts(text_of_own, rank, run.num_ranks(), transport)) {
    if (text.empty()) continue;
    for (const auto& shape : nlohmann::json::parse(text)) {
      layout.push_back(
          {.sizes = shape[2], .dtype = static_cast<at::ScalarType>(shape[0].get<int>()), .has_gradient = shape[1]});
    }
  }
  return layout;
}

MicroBatch first_micro_batch(const FitRun& run) {
  const Batch batch = run.data({.step = 0, .first = 0, .count = run.samples_per_op()});
  MicroBatch result;
  result.tokens = batch.input;
  result.more_inputs = batch.more_inputs;
  result.targets = batch.target;
  // The other fields may stay: only shapes are of interest.
  result.dropout.seed = run.options.seed;
  return result;
}

/// The values come from replica 0 in group 0. `stages` are on this rank.
void share_initial_values(const FitRun& run, RankId rank, const std::map<StageId, ModuleStage*>& stages,
                          Transport& transport) {
  const at::NoGradGuard no_graph;
  // Modules may initialize themselves from any source of random numbers, so copies of a stage take the values of its
  // owner. All sends start before the first receive is awaited, so ranks cannot wait for each other in a circle.
  std::vector<std::unique_ptr<Pending>> sends;
  std::vector<std::pair<RankId, at::Tensor>> received;
  const auto groups = run.rank_groups();
  for (const auto& [id, stage] : stages) {
    for (const Parameter& parameter : stage->values()) {
      const at::Tensor& value = parameter.value;
      if (rank != run.owner(id)) {
        received.emplace_back(run.owner(id), value);
        continue;
      }
      for (const RankId other : groups[id.index()]) {
        // A copy, because training may change the value before a rank thread reads it.
        if (other != rank) sends.push_back(transport.start_send(other, value.detach().contiguous().clone(), {}));
      }
    }
  }
  // Sequential, so that no receive is pending at the first use of an op (Executor::warm_up()).
  for (const auto& [owner, value] : received)
    value.copy_(transport.post_receive(owner, {value.sizes().vec(), value.scalar_type()}, {})->wait());
  for (auto& pending : sends) pending->wait();
}

/// Names are in ascending order, the order of squared norms in every layout.
std::vector<std::string> gather_parameter_names(const FitRun& run, RankId rank,
                                                const std::map<StageId, ModuleStage*>& stages, Transport& transport) {
  std::string own;  // Lines
  for (const auto& [id, stage] : stages) {
    // Each parameter is listed by one rank only.
    if (rank != run.owner(id)) continue;
    for (const Parameter& parameter : stage->parameters()) own += parameter.name + '\n';
  }
  std::vector<std::string> names;
  for (const std::string& text : gather_texts(own, rank, run.num_ranks(), transport)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

/// Returns the output of each stage but the last for a micro-batch [S - 1]. Runs replica 0 of group 0 once on samples
/// of step 0. All `stages` then expect their shape.
std::vector<TensorSpec> find_boundaries(const FitRun& run, RankId rank, const std::map<StageId, ModuleStage*>& stages,
                                        Transport& transport) {
  // Shapes of a user's modules are not known in advance, and receives must be posted with the right size. One forward
  // through all stages, one stage after another, finds them.
  std::vector<TensorSpec> boundaries;
  std::vector<std::unique_ptr<Pending>> sends;
  at::Tensor output;  // of the previous stage; undefined on other ranks than its owner
  for (std::int64_t s = 0; s < run.schedule.stages; ++s) {
    const StageId id(s);
    // Each turn of the loop is collective (on_all_ranks()), also on ranks that do not have the stage.
    const bool is_last = s + 1 == run.schedule.stages;
    MessageLayout layout;
    if (rank == run.owner(id)) {
      // Of the previous stage's output. A rank may own both stages, which then needs no message.
      const RankId giver = s == 0 ? rank : run.owner(StageId(s - 1));
      const at::Tensor input = giver == rank ? output : transport.post_receive(giver, boundaries.back(), {})->wait();
      ModuleStage& stage = *stages.at(id);
      output = stage.first_output(input, s == 0 || is_last ? first_micro_batch(run) : MicroBatch());
      layout = stage.output_layout();
    }
    layout = on_all_ranks(layout, run, rank, transport);
    const TensorShape message = message_shape(layout);
    boundaries.push_back({message.sizes, message.dtype});
    if (const auto found = stages.find(id); found != stages.end()) found->second->set_output_layout(layout);
    if (const auto next = stages.find(StageId(s + 1)); next != stages.end()) next->second->set_input_layout(layout);
    if (rank == run.owner(id) && !is_last && run.owner(StageId(s + 1)) != rank)
      sends.push_back(transport.start_send(run.owner(StageId(s + 1)), std::exchange(output, {}).contiguous(), {}));
  }
  for (auto& pending : sends) pending->wait();
  // Of the last stage, which sends nothing.
  boundaries.pop_back();
  return boundaries;
}

bool is_trained(const Parameter& parameter) { return parameter.value.requires_grad(); }

/// Restores torch's generators of the CPU and of `device` at the end of the result's scope.
[[nodiscard]] auto keep_generators(at::Device device) {
  std::vector<std::pair<at::Generator, at::Tensor>> saved;
  for (const at::Device each : {at::Device(at::kCPU), device}) {
    at::Generator generator = at::globalContext().defaultGenerator(each);
    // Other rank threads may draw from the same generator.
    const std::scoped_lock lock(generator.mutex());
    saved.emplace_back(generator, generator.get_state());
  }
  return c10::make_scope_exit([saved = std::move(saved)]() mutable {
    for (auto& [generator, state] : saved) {
      const std::scoped_lock lock(generator.mutex());
      generator.set_state(state);
    }
  });
}

}  // namespace

SampleRange FitRun::samples(std::int64_t step, GroupId group, MicroBatchId micro_batch) const {
  return {step, dealt.first_dealt(first_sample(group, micro_batch), samples_per_op()), samples_per_op()};
}

ModuleStageSpec FitRun::stage(StageId id) const {
  const bool last = id.value() + 1 == schedule.stages;
  return {id, id.value() == 0 ? 0 : ends[id.index() - 1], ends[id.index()], last ? &model.loss : nullptr};
}

ModuleUse FitRun::use(StageId id) const {
  return {.replicated = rank_groups()[id.index()].size() > 1, .recomputed = recompute.contains(id)};
}

RankId FitRun::owner(StageId id) const { return ranks.rank({GroupId(0), schedule.placement.worker(ReplicaId(0), id)}); }

std::vector<RankPair> FitRun::communicating_pairs() const {
  std::set<RankPair> pairs;
  add_communicating_pairs(ranks, program, pairs);
  add_communicating_pairs(ranks, validation, pairs);
  const RankGroups holders = rank_groups();
  // Initial values go from the owner of a stage to its other holders (share_initial_values()).
  for (std::size_t s = 0; s < holders.size(); ++s) {
    const RankId giver = owner(StageId(static_cast<std::int64_t>(s)));
    for (const RankId taker : holders[s]) {
      if (taker == giver) continue;
      const auto [low, high] = std::minmax({static_cast<int>(giver.value()), static_cast<int>(taker.value())});
      pairs.insert({low, high});
    }
  }
  return {pairs.begin(), pairs.end()};
}

FitRun prepare_fit(Model model, Data data, FitOptions options) {
  FitRun run;
  run.model = std::move(model);
  run.data = std::move(data);
  run.options = std::move(options);
  require_possible(run);
  // The base class has what depends on schedule and number of groups only.
  static_cast<RunShape&>(run) = run_shape(request_of(run.options));
  require_trainable(run);
  run.ends = partition_ends(run);
  run.recompute = recomputed_stages(run.options.recompute, run.schedule.stages);
  if (run.options.reduction == ReductionOrder::Canonical)
    run.canonical = canonical_reduction(run, run.options.reduction_blocks, "FitOptions::reduction_blocks");
  const std::int64_t receives_ahead = run.options.receives_ahead;
  // Canonical sums have a fixed order, even on a single rank.
  run.program = training_program(run, {.receives_ahead = receives_ahead,
                                       .recompute = run.recompute,
                                       .all_reduces = {.every_stage = run.canonical.has_value()}});
  run.validation = validation_program(run, receives_ahead);
  return run;
}

RankFit::RankFit(const FitRun& run, RankId rank, Transport& transport)
    : run_(run), place_(run.ranks.place(rank)), transport_(transport) {
  const DeterministicKernels kernels(run_.canonical.has_value());
  stages_ = make_stages_of_worker(run, place_.worker, [&](StageId id) {
    return make_module_stage(run.stage(id), run.model.layers, run.use(id), run.options.seed);
  });
  const std::map<StageId, ModuleStage*> stages = borrow<ModuleStage>(stages_);
  share_initial_values(run, rank, stages, transport);
  // Making stages and first forwards may both use the process's random generator: the forwards wait for all stages and
  // run sequentially.
  std::array<double, 1> trained{};
  for (const auto& [id, stage] : stages)
    trained[0] += static_cast<double>(std::ranges::any_of(stage->values(), is_trained));
  // Checked on all ranks together, so that all of them throw.
  transport.all_sum(trained);
  if (trained[0] == 0) throw ConfigError("no layer has parameters to train: all are frozen, or there are none");
  ProgramShape shape = program_shape(run, place_.group);
  shape.boundaries = find_boundaries(run, rank, stages, transport);
  // Canonical runs compute one norm per parameter, in an order that does not depend on the stages.
  if (run.canonical) {
    shape.canonical = &*run.canonical;
    shape.parameters = gather_parameter_names(run, rank, stages, transport);
  }
  const FitOptions& options = run.options;
  driver_ = std::make_unique<StepDriver>(run, UpdateRule{options.learning_rate, options.steps, options.clip},
                                         place_.worker, borrow<Stage>(stages_), transport_, TensorSpec(), shape);
  driver_->executor().connect_sums();
}

at::Device RankFit::device() const { return stages_.begin()->second->parameters().front().value.device(); }

void RankFit::warm_up(const Program& program, bool& is_warm) {
  // A single rank waits for nobody, and CPUs do not load kernels.
  if (std::exchange(is_warm, true) || run_.num_ranks() == 1 || device().is_cpu()) return;
  std::vector<at::Tensor> buffers;
  for (const auto& [id, stage] : stages_) std::ranges::copy(stage->buffers(), std::back_inserter(buffers));
  // Batch statistics and dropout must be as if the ops had not run.
  const auto same_buffers = keep_values(buffers);
  const auto same_random_numbers = keep_generators(device());
  driver_->executor().warm_up(program.workers[place_.worker.index()], hooks(0, {}));
}

FitStep RankFit::train_step(std::int64_t step) {
  // Callers with an optimizer of their own (the Python package) need no state here.
  if (!optimizer_) {
    const auto in_order = mapped<ParameterGroup*>(stages_, [](const auto& each) { return each.second.get(); });
    optimizer_ = make_optimizer(run_.options.optimizer, in_order);
  }
  FitStep done = train_step(step, [&](double norm) { driver_->update(*optimizer_, step, norm); });
  done.learning_rate = driver_->learning_rate(step);
  return done;
}

FitStep RankFit::train_step(std::int64_t step, const Update& update, bool skip_non_finite) {
  const DeterministicKernels kernels(run_.canonical.has_value());
  warm_up();
  StepHooks with = hooks(step, update);
  // The hook sees each instruction before it runs.
  if (complete_) with.observation.on_instruction = completion();
  if (skip_non_finite) with.update.skip_non_finite = [](const std::string& /*what*/, bool /*is_own*/) {};
  const StepResult done = driver_->train(run_.program.workers[place_.worker.index()], with);
  return {.step = step + 1, .loss = done.loss, .gradient_norm = done.gradient_norm, .is_skipped = done.is_skipped};
}

double RankFit::validation_loss(std::int64_t step) {
  const DeterministicKernels kernels(run_.canonical.has_value());
  warm_up_validation();
  StepHooks with = hooks(step, {});
  with.update.skip_non_finite = [](const std::string& /*what*/, bool /*is_own*/) {};  // The caller's to judge
  return driver_->validate(run_.validation, with);
}

StepHooks RankFit::hooks(std::int64_t step, const Update& update) {
  load_targets(step);
  return {
      .step = step + 1,
      .load = [this, step](StageId stage, MicroBatchId id) { return load(step, stage, id); },
      .update = {.all_stages = update},
      .observation = {.peak_memory = peak_resident_bytes},
  };
}

/// Returns a function for the executor, which calls it before each instruction.
std::function<void(const Instruction&)> RankFit::completion() const {
  std::set<StageId> open;
  for (const auto& [id, stage] : stages_) open.insert(id);
  return [this, open](const Instruction& next) mutable {
    if (next.kind == InstructionKind::StartAllReduce) {
      const StageId stage(next.group.value());
      // The gradients of a stage are complete when their sum starts. Stages without a sum are complete at the latest
      // when the step adds up its numbers.
      if (open.erase(stage) > 0) complete_(stage);
    } else if (next.kind == InstructionKind::ReduceScalars) {
      for (const StageId stage : std::exchange(open, {})) complete_(stage);
    }
  };
}

void RankFit::load_targets(std::int64_t step) {
  targets_.clear();
  // Targets are loaded once per step, counted now and used by the loss later.
  const StageId last(run_.schedule.stages - 1);
  const auto replicas = micro_batches_of_replicas(run_.schedule);
  // The mean is over all targets of the step, so its divisor must be known before the first loss is computed.
  std::array<double, 1> count{};
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    if (run_.schedule.placement.worker(ReplicaId(static_cast<std::int64_t>(r)), last) != place_.worker) continue;
    for (const MicroBatchId id : replicas[r]) {
      targets_[id] = run_.data(run_.samples(step, place_.group, id)).target;
      count[0] += static_cast<double>(run_.model.loss.count(targets_[id]));
    }
  }
  if (run_.sum_targets)
    count[0] = run_.sum_targets(count[0]);
  else
    transport_.all_sum(count);
  if (!(count[0] > 0)) throw NoTargetsError(fmt::format("step {}: Loss::count is 0 for all targets", step + 1));
  loss_scale_ = 1 / count[0];
}

MicroBatch RankFit::load(std::int64_t step, StageId stage, MicroBatchId micro_batch) const {
  const SampleRange samples = run_.samples(step, place_.group, micro_batch);
  MicroBatch batch;
  if (stage == StageId(0)) {
    Batch given = run_.data(samples);
    batch.tokens = given.input;
    batch.more_inputs = std::move(given.more_inputs);
  }
  if (stage.value() + 1 == run_.schedule.stages) batch.targets = targets_.at(micro_batch);
  batch.token_loss_scale = loss_scale_;
  batch.dropout = {.seed = run_.options.seed, .step = step, .first_sample = samples.first};
  return batch;
}

Parameters fit(const FitRun& run, const std::function<void(const FitStep&)>& on_step) {
  const auto ranks = static_cast<int>(run.num_ranks());
  const int threads =
      run.options.threads > 0 ? static_cast<int>(run.options.threads) : std::max(available_cores() / ranks, 1);
  Parameters parameters;
  std::mutex mutex;
  run_rank_threads(ranks, run.rank_groups(), [&](RankId rank, Transport& transport) {
    // With OpenMP, torch's setting belongs to the calling thread, so each rank sets its own.
    const auto restore = c10::make_scope_exit([before = at::get_num_threads()] { at::set_num_threads(before); });
    at::set_num_threads(threads);
    RankFit trainer(run, rank, transport);
    for (std::int64_t step = 0; step < run.options.steps; ++step) {
      const FitStep done = trainer.train_step(step);
      // Rank 0 runs in the caller's thread (run_rank_threads()).
      if (on_step && rank == RankId(0)) on_step(done);
    }
    // Replicas of a stage are equal, so whichever rank comes first gives the values.
    const std::lock_guard lock(mutex);
    for (const auto& [id, stage] : trainer.stages())
      for (const Parameter& own : stage->values()) parameters.emplace(own.name, own.value.detach());
  });
  return parameters;
}

}  // namespace chimera
