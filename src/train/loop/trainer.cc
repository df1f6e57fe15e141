#include "train/loop/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "core/cgroup.h"
#include "core/console.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "engine/programs.h"
#include "engine/run_shape.h"
#include "engine/sharded_optimizer.h"
#include "engine/stored_values.h"
#include "launch/local/rank.h"
#include "train/loop/parameters_hash.h"
#include "train/recover/copies.h"
#include "train/recover/final_error.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"
#include "train/setup/job_checkpoints.h"

namespace chimera {
namespace {

/// Returns the rank with weights and the most steps; the first of several.
RankId furthest(std::span<const RankState> states) {
  const auto steps = [](const RankState& state) { return state.has_weights ? state.done : -1; };
  return RankId(std::ranges::max_element(states, {}, steps) - states.begin());
}

}  // namespace

ResumeState agree_on_resume_state(std::span<const RankState> states, const RankGroups& groups) {
  ResumeState all{.done = 0, .metrics_source = furthest(states), .state_sources = {}};
  all.done = states[all.metrics_source.index()].done;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const RankState& state = states[rank];
    if (!state.has_weights || state.done == all.done) continue;
    if (state.done + 1 != all.done || state.gradients_complete_step != all.done) {
      throw Error(fmt::format("rank {} has finished step {} and cannot run step {}, but rank {} has finished it", rank,
                              state.done, all.done, all.metrics_source.value()));
    }
  }
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto giver =
        std::ranges::find_if(groups[group], [&](RankId rank) { return states[rank.index()].has_weights; });
    if (giver == groups[group].end()) throw Error(fmt::format("no rank is left that holds stage {}", group));
    all.state_sources.push_back(*giver);
  }
  return all;
}

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Returns 0 without values: a replacement may start after the last step.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Trainer::Trainer(const Job& job, RankId rank, Transport& transport, WeightOrigin beginning)
    : job_(job),
      kernels_(job.canonical.has_value()),
      rank_(rank),
      place_(job.ranks.place(rank)),
      device_(device_of(job.options, rank)),
      verified_(job.options.verify_messages ? std::optional<VerifiedMessages>(transport) : std::nullopt),
      transport_(verified_ ? static_cast<Transport&>(*verified_) : transport),
      loader_(job, place_, device_),
      progress_(device_),
      copies_(stage_copies(job)),
      first_step_(job.first_step),
      done_(job.first_step),
      has_weights_(beginning == WeightOrigin::Own) {
  make_model();
  make_optimizers();
  const TensorSpec message{{job.micro_batch_size(), job.options.sequence, job.model.hidden},
                           scalar_type(job.options.dtype)};
  ProgramShape shape = program_shape(job, place_.group);
  shape.parameters = job.parameters;
  shape.counts_cpu_time = available_cores() < job.local_ranks();
  if (job.canonical) shape.canonical = &*job.canonical;
  shape.scatters = job.options.shard_optimizer;
  shape.slice_bounds = job.slice_bounds;
  const TrainOptions& options = job.options;
  driver_ =
      std::make_unique<StepDriver>(job, UpdateRule{options.learning_rate, options.steps, options.clip}, place_.worker,
                                   borrow<Stage>(stages_), transport_, message, shape, tied_.get());
  make_checkpointer();
}

void Trainer::make_checkpointer() {
  last_metrics_.step = job_.first_step;
  if (job_.first_step > 0) {
    last_metrics_.updates = job_.checkpoints->resumed->updates;
    last_metrics_.loss_watch = job_.checkpoints->resumed->loss_watch;
  }
  std::vector<Optimizer*> optimizers;
  if (optimizer_) optimizers.push_back(optimizer_.get());
  for (const auto& [id, optimizer] : stage_optimizers_) optimizers.push_back(optimizer.get());
  std::vector<OptimizerTensor> state;
  for (Optimizer* optimizer : optimizers) {
    if (job_.first_step > 0) resume_optimizer(job_, *optimizer);
    for (OptimizerTensor& tensor : optimizer->state()) state.push_back(std::move(tensor));
  }
  if (!job_.options.checkpoint.folder.empty()) checkpointer_.emplace(job_, rank_, transport_, trained_, state);
}

void Trainer::make_optimizers() {
  if (job_.schedule.updates) {
    for (const auto& [id, stage] : stages_) {
      stage_optimizers_[id] = make_optimizer(job_.options.optimizer, {stage.get()});
    }
    return;
  }
  std::vector<ParameterGroup*> in_order;
  for (const auto& [id, group] : trained_) in_order.push_back(group);
  optimizer_ = job_.options.shard_optimizer
                   ? make_sharded_optimizer(job_.options.optimizer, trained_, job_.rank_groups(), rank_, transport_)
                   : make_optimizer(job_.options.optimizer, in_order);
}

/// A replacement has uninitialized tensors.
InitialValue Trainer::first_value() const {
  if (!has_weights_) {
    return [](const ParameterSpec& parameter, const at::TensorOptions& options) {
      return at::empty(parameter.shape, options);
    };
  }
  const bool resumes = job_.first_step > 0;
  return [value = resumes ? resumed_values(job_) : first_values(job_.from, job_.options.seed)](
             const ParameterSpec& parameter, const at::TensorOptions& options) {
    note_progress({RankProgress::Phase::StartUp});  // Large stages take long
    return value(parameter, options);
  };
}

void Trainer::make_model() {
  const at::ScalarType dtype = scalar_type(job_.options.dtype);
  const InitialValue value = first_value();
  const std::vector<StageId> held = job_.stages_of(place_.worker);
  const auto holds = [&](std::int64_t stage) { return std::ranges::binary_search(held, StageId(stage)); };
  const TiedUses uses{holds(0), holds(job_.schedule.stages - 1)};
  if (job_.model.tied && uses.any()) tied_ = make_tied_weight(job_.model, uses, dtype, value, device_);
  const TiedLeaves tied = tied_ ? tied_->leaves() : TiedLeaves{};
  stages_ = make_held_stages(job_, place_.worker, [&](StageId id) {
    return make_stage(job_.model, job_.partition[id.index()], dtype, value, tied, device_);
  });
  for (const auto& [id, stage] : stages_) trained_[parameters_of(id)] = stage.get();
  if (tied_) trained_[tied_matrix(job_.schedule.stages)] = tied_.get();
}

RunSummary Trainer::run(const std::function<void(const StepMetrics&)>& on_step) {
  const std::int64_t steps = job_.options.steps;
  const bool repairs = job_.options.different_copies == DifferentCopies::Repair;
  if (repairs && is_closed_ && hashes_.empty()) compare_copies();  // Baseline for require_unchanged() in the first step
  bool goes_on = is_closed_ || close_step(on_step);
  double used_memory = 0;
  while (goes_on && done_ < steps) {
    const StepMetrics metrics = do_step(done_);
    used_memory = std::max(used_memory, metrics.used_memory_bytes.value_or(0));
    if (done_ == first_step_ + 1 && done_ < steps) {  // First use of memory and caches
      driver_->executor().forget_op_times();
      optimizer_seconds_ = 0;
    } else {
      step_seconds_.push_back(metrics.step_seconds);
    }
    goes_on = close_step(on_step);
  }
  RunSummary summary;
  if (done_ > first_step_) summary = summarize();
  summary.is_whole = done_ == steps;
  summary.peak_memory_bytes = last_metrics_.peak_memory_bytes;
  summary.used_memory_bytes = used_memory;
  return summary;
}

bool Trainer::close_step(const std::function<void(const StepMetrics&)>& on_step) {
  const TrainOptions& options = job_.options;
  StepMetrics& metrics = last_metrics_;
  const bool last = metrics.step == options.steps;
  if (last || metrics.step % options.steps_between_comparisons() == 0) compare_copies();
  if (job_.canonical) metrics.parameters_hash = hash_parameters();
  if (options.validate_every > 0 && (metrics.step % options.validate_every == 0 || last)) {
    metrics.validation_loss = validation_loss();
  }
  if (options.sample_every > 0 && (metrics.step % options.sample_every == 0 || last)) metrics.sample = say();
  on_step(metrics);
  const bool goes_on = !checkpointer_ || save_where_due(metrics);
  is_closed_ = true;
  return goes_on;
}

/// Returns whether the run continues. Does not save a corrupted replica.
bool Trainer::save_where_due(const StepMetrics& metrics) {
  const bool is_due = checkpointer_->is_due(metrics.step);
  const bool stops = checkpointer_->stops_after(metrics.step);
  if ((is_due || stops) && metrics.step % job_.options.steps_between_comparisons() != 0) compare_copies();
  if (is_due) checkpointer_->save(metrics);
  return !stops;
}

void Trainer::trace(bool on, std::function<MemorySample()> look_at_memory) {
  tracer_.reset();
  if (!on) return;
  tracer_.emplace(job_.training.workers[place_.worker.index()].size(), job_.worker_groups().size(),
                  std::move(look_at_memory));
}

std::string Trainer::current() const {
  const std::string instruction = driver_->executor().current();
  return instruction.empty() ? fmt::format("step {}", step_ + 1) : instruction;
}

StepMetrics Trainer::train_step(std::int64_t step) {
  StepMetrics metrics = do_step(step);
  if (job_.canonical) metrics.parameters_hash = hash_parameters();
  return metrics;
}

/// On a GPU, runs the ops of training and validation once without messages (Executor::warm_up). BERT's attention has
/// other ops with a mask, which only padded micro-batches have.
void Trainer::warm_up(std::int64_t step) {
  if (std::exchange(is_warm_, true) || device_.is_cpu() || job_.num_ranks() == 1) return;
  const auto warm = [&](const Program& program, bool trains, bool is_masked) {
    const auto load = [&](StageId stage, MicroBatchId id) {
      MicroBatch batch = loader_.training(step, stage, id);
      if (!trains) batch.dropout = {};
      batch.attention_mask = is_masked ? at::ones_like(batch.tokens, at::kBool) : at::Tensor();
      return batch;
    };
    driver_->executor().warm_up(
        program.workers[place_.worker.index()],
        {.on_instruction = [&](const Instruction&) { progress_.note({RankProgress::Phase::StartUp}); },
         .load = load,
         .peak_memory = peak_memory_of(device_),
         .before_wait = [&] { progress_.catch_up(); }});
  };
  for (const bool is_masked : {false, true}) {
    if (is_masked && is_causal(job_.model.family)) continue;
    warm(job_.training, /*trains=*/true, is_masked);
    if (job_.options.validate_every > 0) warm(job_.validation, /*trains=*/false, is_masked);
  }
}

StepMetrics Trainer::do_step(std::int64_t step) {
  step_ = step;
  rehearse_flip("step", 0);
  loader_.begin_step(step);
  warm_up(step);
  const auto start = Clock::now();
  const std::int64_t n = job_.schedule.micro_batches;
  const bool leaves_out = chimera::leaves_out(job_.left_out, step + 1);
  const std::int64_t first = job_.schedule.updates ? 0 : step;  // Asynchronous: micro-batches are numbered across steps
  std::function<MicroBatch(StageId, MicroBatchId)> load_next;
  if (step + 1 < job_.options.steps) {
    load_next = [&](StageId stage, MicroBatchId id) { return loader_.training(step + 1, stage, id); };
  }
  const StepHooks hooks{
      .step = first + 1,
      .on_instruction = [&](const Instruction& instruction) { note_instruction(instruction); },
      .load =
          [&](StageId stage, MicroBatchId id) {
            return loader_.training(first + id.value() / n, stage, MicroBatchId(id.value() % n));
          },
      .optimizer_step = [&](double norm) { optimizer_step(step, norm); },
      .peak_memory = peak_memory_of(device_),
      .used_memory = used_memory_of(device_),
      .update_weights = [&](StageId stage, MicroBatchId last, double norm) { update_weights(stage, last, norm); },
      .before_wait = [&] { progress_.catch_up(); },
      .votes = checkpointer_ ? &checkpointer_->votes() : nullptr,
      .skip_non_finite = leaves_out || job_.options.skips_non_finite(step + 1) ? skip_hook(step + 1) : nullptr,
      .leaves_out_update = leaves_out,
      .tracer = tracer_ ? &*tracer_ : nullptr,
      .record = job_.options.cuda_graphs ? record_on(accelerator()) : CaptureGraph(),
      .load_next = std::move(load_next),
  };
  if (tracer_) tracer_->begin_step(step);
  const StepTotals totals = driver_->train(instructions(step), hooks);
  StepMetrics metrics;
  metrics.step = step + 1;
  metrics.loss = totals.loss;
  metrics.gradient_norm = totals.gradient_norm;
  metrics.learning_rate = driver_->learning_rate(step);
  metrics.tokens = job_.mini_batch() * job_.options.sequence;
  metrics.step_seconds = seconds_since(start);
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.step_seconds;
  metrics.peak_memory_bytes = totals.peak_memory_bytes;
  if (!device_.is_cpu()) metrics.used_memory_bytes = totals.used_memory_bytes;
  if (!leaves_out) skipped_in_row_ = totals.is_skipped ? skipped_in_row_ + 1 : 0;
  skipped_ += totals.is_skipped ? 1 : 0;
  metrics.is_skipped = totals.is_skipped;
  metrics.skipped = skipped_;
  metrics.updates = last_metrics_.updates + (totals.is_skipped ? 0 : job_.updates());
  if (job_.options.spike > 0) watch_loss(metrics);
  last_metrics_ = metrics;
  done_ = metrics.step;
  is_closed_ = false;
  rehearse_flip("updated", 0);
  rehearse_flip("moments", 1);
  return metrics;
}

/// Reports a value that is not finite, or ends the run after kMostSkippedInRow skipped steps.
std::function<void(const std::string&, bool)> Trainer::skip_hook(std::int64_t step) {
  return [this, step](const std::string& what, bool is_own) {
    if (skipped_in_row_ == kMostSkippedInRow) {
      const std::string why =
          fmt::format("{}, and the {} steps before it were not finite either", what, kMostSkippedInRow);
      if (is_own) throw Error(why + "; try a lower --learning-rate");
      throw PeerLostError(why);
    }
    if (!is_own) return;
    messages().write(fmt::format("chimera: rank {}: {}; step {} makes no update\n", rank_.value(), what, step));
  };
}

const std::vector<Instruction>& Trainer::instructions(std::int64_t step) {
  if (!job_.schedule.updates) return job_.training.workers[place_.worker.index()];
  const auto [first, steps] = job_.run_of(step);
  piece_ = job_.runs.at(steps).piece(place_.worker.index(), step - first, first);
  return piece_;
}

std::vector<const ParameterGroup*> Trainer::own_groups() const {
  const WorkerGroups groups = job_.worker_groups();
  std::vector<const ParameterGroup*> own;
  for (const auto& [id, group] : trained_) {
    if (place_.group == GroupId(0) && groups[id.index()].front() == place_.worker) own.push_back(group);
  }
  return own;
}

std::string Trainer::hash_parameters() { return parameters_hash(job_.parameters, own_groups(), transport_); }

double Trainer::validation_loss() {
  const std::int64_t samples = job_.validation_samples->count();
  const std::int64_t batches = std::clamp<std::int64_t>(samples / job_.mini_batch(), 1, job_.options.validate_batches);
  double loss = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const StepHooks hooks{
        .step = step_ + 1,
        .on_instruction = [&](const Instruction& instruction) { note_instruction(instruction); },
        .load = [&](StageId stage, MicroBatchId id) { return loader_.validation(batch, stage, id); },
        .optimizer_step = {},
        .peak_memory = peak_memory_of(device_),
        .before_wait = [&] { progress_.catch_up(); },
    };
    loss += driver_->validate(job_.validation, hooks);
  }
  return loss / static_cast<double>(batches);
}

namespace {

StageRanks first_copy(const RunShape& shape, RankId self) {
  StageRanks ranks{.holders = {}, .self = self};
  for (std::int64_t s = 0; s < shape.schedule.stages; ++s) {
    const WorkerId worker = shape.schedule.placement.worker(ReplicaId(0), StageId(s));
    ranks.holders.push_back(shape.ranks.rank({GroupId(0), worker}));
  }
  return ranks;
}

}  // namespace

/// Replica 0 in group 0 computes. All ranks call it between steps and get the text.
std::string Trainer::say() {
  DistributedModel model(borrow<Stage>(stages_), first_copy(job_, rank_), transport_, job_.model.hidden,
                         scalar_type(job_.options.dtype), device_);
  const TrainingPrompt& prompt = *job_.prompt;
  const auto on_token = [&](TokenId, std::string_view) {
    note_instruction({.kind = InstructionKind::ReduceScalars});
    progress_.catch_up();
  };
  return continue_prompt(model, prompt.prompt, prompt.options, prompt.tokenizer.get(), on_token).text;
}

void Trainer::note_instruction(const Instruction& instruction) {
  // All gradients are complete here. In validation the vote has no effect.
  if (instruction.kind == InstructionKind::ReduceScalars) {
    if (done_ == step_ && job_.options.watches_weights()) require_unchanged();
    voted_for_ = std::max(voted_for_, step_ + 1);
  }
  progress_.note({RankProgress::Phase::Steps, step_ + 1, instruction});
}

void Trainer::optimizer_step(std::int64_t step, double gradient_norm) {
  const auto start = Clock::now();
  hashes_.clear();
  driver_->update(*optimizer_, step, gradient_norm);
  for (const auto& [id, stage] : stages_) stage->update_copies();
  optimizer_seconds_ += seconds_since(start);
}

void Trainer::update_weights(StageId stage, MicroBatchId last, double gradient_norm) {
  const auto start = Clock::now();
  driver_->update(*stage_optimizers_.at(stage), last.value() / job_.schedule.micro_batches, gradient_norm);
  optimizer_seconds_ += seconds_since(start);
}

RunSummary Trainer::summarize() {
  // Replicas measured the same ops; sums and counts over all workers give the mean.
  std::vector<double> numbers = driver_->executor().op_times().to_numbers();
  const std::size_t num_times = numbers.size();
  numbers.resize(num_times + static_cast<std::size_t>(job_.num_ranks()), 0);
  numbers[num_times + rank_.index()] =
      optimizer_seconds_ / static_cast<double>(std::max<std::size_t>(step_seconds_.size(), 1));
  transport_.all_sum(numbers);
  RunSummary summary;
  summary.steps = static_cast<std::int64_t>(step_seconds_.size());
  summary.optimizer_seconds =
      *std::max_element(numbers.begin() + static_cast<std::ptrdiff_t>(num_times), numbers.end());
  numbers.resize(num_times);
  summary.op_times = OpTimes::from_numbers(numbers);
  summary.step_seconds = median(step_seconds_);
  if (job_.options.report_stragglers) summary.rank_op_times = gather_op_times();
  return summary;
}

std::vector<OpTimes> Trainer::gather_op_times() {
  const std::vector<double> own = driver_->executor().op_times().to_numbers();
  const auto size = static_cast<std::ptrdiff_t>(own.size());
  std::vector<double> all(own.size() * static_cast<std::size_t>(job_.num_ranks()), 0);
  std::ranges::copy(own, all.begin() + size * rank_.value());
  transport_.all_sum(all);
  std::vector<OpTimes> times;
  for (auto part = all.begin(); part != all.end(); part += size)
    times.push_back(OpTimes::from_numbers({part, part + size}));
  return times;
}

/// A spike ends the run on all ranks, which have the same loss; rank 0 stores the steps to leave out in the next
/// attempt.
void Trainer::watch_loss(StepMetrics& metrics) {
  metrics.loss_watch = last_metrics_.loss_watch;
  if (metrics.is_skipped) return;
  const LossWatch& watch = metrics.loss_watch;
  const double deviations = watch.deviations_above(metrics.loss);
  if (deviations <= job_.options.spike) return metrics.loss_watch.note(metrics.loss);
  const LeftOutSteps range{std::max<std::int64_t>(metrics.step - job_.options.spike_skip + 1, 1), metrics.step};
  if (rank_ == RankId(0)) {
    std::vector<LeftOutSteps> all = job_.left_out;
    all.push_back(range);
    write_left_out(job_.options.checkpoint.folder, all);
  }
  end_everywhere(
      fmt::format("the loss, {:.4f}, is {:.1f} deviations of {:.4f} above the expected {:.4f} (--spike {:g}); "
                  "steps {} to {} make no update from now on",
                  metrics.loss, deviations, watch.deviation(), watch.expected(), job_.options.spike, range.first,
                  range.last),
      rank_ == RankId(0), transport_);
}

namespace {

/// Injects a fault: flips a high-order bit of the first element.
void flip_a_bit(const at::Tensor& value) {
  static_cast<std::uint8_t*>(value.data_ptr())[value.element_size() - 2] ^= 1U;
}

}  // namespace

/// `tensor` is an index into state_of() of the first group: 0 for a weight, 1 for its optimizer state.
void Trainer::rehearse_flip(std::string_view point, std::size_t tensor) {
  if (fault_point(point)) flip_a_bit(state_of(trained_.begin()->first).at(tensor));
}

StateHashes Trainer::hash_copies() {
  const HashHooks hooks{.after_tensor = [&] { progress_.note_more(); }, .before_wait = [&] { progress_.catch_up(); }};
  StateHashes hashes;
  for (const StageCopies& stage : copies_) {
    const auto& ranks = stage.ranks;
    if (std::ranges::find(ranks, rank_) != ranks.end()) hashes[stage.group] = hash_bytes(state_of(stage.group), hooks);
  }
  return hashes;
}

void Trainer::compare_copies() {
  hashes_ = hash_copies();
  const auto differing = differing_stages(copies_, hashes_, rank_, transport_);
  if (differing.empty()) return;
  const bool repairs = job_.options.different_copies == DifferentCopies::Repair &&
                       std::ranges::all_of(differing, &DeviatingStage::has_majority);
  if (!repairs) {
    const DeviatingStage& first = differing.front();
    end_everywhere(describe(first, done_), rank_ == first.odd.front(), transport_);
  }
  for (const DeviatingStage& stage : differing) repair(stage);
  for (const auto& [id, stage] : stages_) stage->update_copies();
  hashes_ = hash_copies();
}

/// Overwrites deviating replicas with the majority's state.
void Trainer::repair(const DeviatingStage& stage) {
  for (const RankId odd : stage.odd) {
    transfer_state(stage.copies.group, stage.right, odd);
    if (rank_ != odd) continue;
    messages().write(
        fmt::format("chimera: rank {0}: its copy of stage {1} differed from the majority after step {2}; the copy of "
                    "rank {3} has replaced it; test memory and processors of the machine of rank {0}\n",
                    odd.value(), stage.copies.group.value(), done_, stage.right.value()));
  }
}

/// Throws Error if the state changed since the last update.
void Trainer::require_unchanged() {
  if (hashes_.empty() || hash_copies() == hashes_) return;
  throw Error(
      "weights or optimizer state of this rank changed since the last update: memory or a processor changes bits");
}

namespace {

constexpr std::size_t kNumbersOfState = 3;

void write(const RankState& state, double* numbers) {
  numbers[0] = state.has_weights ? 1 : 0;
  numbers[1] = static_cast<double>(state.done);
  numbers[2] = static_cast<double>(state.gradients_complete_step);
}

/// Returns [rank]. All ranks call it.
std::vector<RankState> gather(const RankState& own, RankId rank, std::int64_t ranks, Transport& transport) {
  std::vector<double> numbers(kNumbersOfState * static_cast<std::size_t>(ranks), 0);
  write(own, numbers.data() + kNumbersOfState * rank.index());
  transport.all_sum(numbers);
  std::vector<RankState> states;
  for (auto number = numbers.begin(); number != numbers.end(); number += kNumbersOfState) {
    states.push_back({.has_weights = number[0] > 0,
                      .done = static_cast<std::int64_t>(number[1]),
                      .gradients_complete_step = static_cast<std::int64_t>(number[2])});
  }
  return states;
}

}  // namespace

void Trainer::drop_step() {
  fault_point("leave");
  driver_->executor().drop();
  if (job_.options.watches_weights()) require_unchanged();  // A replacement may receive this state
  hashes_.clear();
  if (checkpointer_) checkpointer_->drop();
}

void Trainer::take_over() {
  const RankState own{has_weights_, done_, voted_for_};
  const std::vector<RankState> states = gather(own, rank_, job_.num_ranks(), transport_);
  const RankGroups groups = job_.rank_groups();
  const ResumeState all = agree_on_resume_state(states, groups);
  const bool is_behind = has_weights_ && done_ < all.done;
  agree_on_last_step(all.metrics_source);
  if (is_behind && !last_metrics_.is_skipped) optimizer_step(all.done - 1, last_metrics_.gradient_norm);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const RankId rank : groups[group]) {
      const bool takes = !states[rank.index()].has_weights;
      if (takes) transfer_state(ParameterGroupId(static_cast<std::int64_t>(group)), all.state_sources[group], rank);
    }
  }
  if (!has_weights_) {
    optimizer_->set_steps(last_metrics_.updates);
    for (const auto& [id, stage] : stages_) stage->update_copies();
  }
  has_weights_ = true;
  done_ = all.done;
  step_ = std::max<std::int64_t>(done_ - 1, 0);
  is_closed_ = done_ == first_step_;
  fault_point("resume");
}

/// Copies metrics, counters and save plans from `metrics_source` to all ranks.
void Trainer::agree_on_last_step(RankId metrics_source) {
  StepMetrics& last = last_metrics_;
  double is_skipped = last.is_skipped ? 1 : 0;
  const std::array<double*, 10> measured = {&last.loss,
                                            &last.gradient_norm,
                                            &last.learning_rate,
                                            &last.step_seconds,
                                            &last.tokens_per_second,
                                            &last.peak_memory_bytes,
                                            &last.loss_watch.mean,
                                            &last.loss_watch.distance,
                                            &last.loss_watch.variance,
                                            &is_skipped};
  const std::array<std::int64_t*, 8> counted = {
      &last.step, &last.tokens,     &last.skipped, &last.updates, &last.loss_watch.losses,
      &skipped_,  &skipped_in_row_, &first_step_};
  const auto plans = checkpointer_ ? checkpointer_->plans() : std::array<double, Checkpointer::kNumPlans>{};
  std::vector<double> numbers;
  for (const double* value : measured) numbers.push_back(*value);
  for (const std::int64_t* value : counted) numbers.push_back(static_cast<double>(*value));
  numbers.insert(numbers.end(), plans.begin(), plans.end());
  if (rank_ != metrics_source) std::ranges::fill(numbers, 0);
  transport_.all_sum(numbers);
  if (rank_ != metrics_source) last = {};
  auto number = numbers.begin();
  for (double* value : measured) *value = *number++;
  for (std::int64_t* value : counted) *value = static_cast<std::int64_t>(*number++);
  last.is_skipped = is_skipped > 0;
  if (checkpointer_) checkpointer_->go_on({number, numbers.end()});
}

/// Returns weights and optimizer state, in the same order on all ranks of the group. Omits sharded optimizer state.
std::vector<at::Tensor> Trainer::state_of(ParameterGroupId group) const {
  std::vector<at::Tensor> tensors;
  std::vector<OptimizerTensor> remembered;
  if (!job_.options.shard_optimizer) {
    remembered = optimizer_ ? optimizer_->state() : stage_optimizers_.at(StageId(group.value()))->state();
  }
  for (const Parameter& parameter : trained_.at(group)->parameters()) {
    tensors.push_back(parameter.value.detach());
    for (const OptimizerTensor& state : remembered) {
      if (state.parameter == parameter.name) tensors.push_back(state.value);
    }
  }
  return tensors;
}

/// Sends one tensor at a time, to limit memory.
void Trainer::transfer_state(ParameterGroupId group, RankId giver, RankId taker) {
  if (rank_ != giver && rank_ != taker) return;
  const at::NoGradGuard no_grad;
  MessageTag tag{last_metrics_.step, {OpKind::Forward, ReplicaId(0), StageId(group.value()), MicroBatchId(0)}};
  for (at::Tensor& tensor : state_of(group)) {
    fault_point("restore");
    note_progress({RankProgress::Phase::StartUp});
    if (rank_ == giver) {
      transport_.start_send(taker, tensor, tag)->wait();
    } else {
      const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
      tensor.copy_(transport_.post_receive(giver, spec, tag)->wait());
    }
    tag.op.micro_batch = MicroBatchId(tag.op.micro_batch.value() + 1);
  }
}

}  // namespace chimera
