#include "train/loop/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "checkpoint/checkpoint_folder.h"
#include "core/cgroup.h"
#include "core/clock.h"
#include "core/error.h"
#include "engine/adaptation.h"
#include "engine/programs.h"
#include "train/recover/final_error.h"
#include "train/recover/state_hash.h"
#include "train/setup/device.h"
#include "train/setup/job_checkpoints.h"
#include "transport/stream.h"

// Trainer::run() is the loop of training: run_step() computes a step and updates the weights, close_step() does what
// follows from it: comparisons of replicas, validation, metrics, saves. A run that loses a rank may end between the
// two, so StepPosition counts updated and closed steps apart. rejoin(), in trainer_handover.cc, continues such a run
// over new connections.

namespace chimera {
namespace {

/// Size and type of the hidden states that stages exchange.
TensorSpec hidden_states(const JobShape& job, std::int64_t sequence, DataType dtype) {
  // With sequence parallelism, each rank of a worker has a part of the tokens, and sends only this part.
  const std::int64_t tokens = sequence / (job.cuts_tokens ? job.tensor_parallel : 1);
  return {{job.run.samples_per_op(), tokens, job.model.hidden}, scalar_type(dtype)};
}

ProgramShape program_shape_of(const RankContext& self) {
  const JobShape& job = self.job;
  ProgramShape shape = program_shape(job.run, self.place.group);
  shape.parameters = job.parameters;
  // The wall time of an op would include its wait for a core.
  shape.counts_cpu_time = available_cores() < job.local_ranks();
  if (job.canonical) shape.canonical = &*job.canonical;
  shape.scatters = self.job.options.memory.shard_optimizer && !job.has_second_shards;
  shape.slice_bounds = job.slice_bounds;
  shape.counts_whole = !self.is_copy();
  if (self.tensor) shape.sum_over_parts = [&self](const at::Tensor& numbers) { self.tensor->sum(numbers); };
  return shape;
}

}  // namespace

Trainer::Trainer(const Job& job, RankId rank, Transport& transport, WeightOrigin origin, const Kept* kept)
    : self_(job, rank, transport),
      steps_(job.first_step),
      loader_(job, self_.place, self_.device),
      progress_(self_.device, [this] { self_.transport.require_peers(); }),
      model_(kept != nullptr ? TrainedModel(self_, kept->model) : TrainedModel(self_, origin)),
      driver_(
          job.run, UpdateRule{job.options.updates.learning_rate, job.options.updates.steps, job.options.updates.clip},
          self_.place.worker, model_.stages(), self_.transport,
          hidden_states(job, options().data.sequence, options().numbers.dtype), program_shape_of(self_), model_.tied()),
      replicas_(self_, model_, progress_),
      losses_(self_),
      replacement_(self_, model_, kept != nullptr ? kept->gradients_complete_step : 0) {
  last_.step = job.first_step;
  if (!options().checkpoint.folder.empty())
    checkpointer_.emplace(job, rank, self_.transport, model_.groups(), model_.optimizer_state(), self_.tensor.get());
  if (kept != nullptr) {
    last_ = kept->loop.last;
    steps_.resume(kept->loop.first_step, kept->done);
    losses_.set_skipped_in_row(kept->loop.skipped_in_row);
    if (checkpointer_) checkpointer_->resume(kept->loop.plans);
    return;
  }
  if (origin == WeightOrigin::Own) driver_.executor().connect_sums();
  if (job.first_step == 0) return;
  last_.updates = job.checkpoints->resumed->updates;
  last_.loss_watch = job.checkpoints->resumed->loss_watch;
}

Trainer::Kept Trainer::keep() const {
  return {.model = model_.keep(last_.updates),
          .loop = loop_state(),
          .done = steps_.done(),
          .gradients_complete_step = replacement_.gradients_complete_step()};
}

RunSummary Trainer::run(const OnStep& on_step, std::optional<std::int64_t> until) {
  const std::int64_t steps = until.value_or(options().updates.steps);
  // A run that resumes after a rank loss may have updated weights of a step that was never closed. It closes that step
  // first.
  if (steps_.is_closed()) replicas_.ensure_hashes(steps_.done());
  bool continues = steps_.is_closed() || close_step(on_step);
  while (continues && steps_.done() < steps) {
    run_step(steps_.done());
    const bool is_warm_up = steps_.done() == steps_.first() + 1 && steps_.done() < steps;
    // The first step pays for memory, caches and lazy initialization, so its times would spoil every mean.
    if (is_warm_up) driver_.executor().forget_times();
    if (is_warm_up && shared_ != nullptr) shared_->forget();
    times_.note_step(last_, is_warm_up);
    continues = close_step(on_step);
  }
  RunSummary summary;
  const bool is_over = !continues || steps_.done() == options().updates.steps;
  if (is_over && steps_.done() > steps_.first()) {
    await_device(self_.device);
    times_.read_updates();
    summary = times_.summarize(driver_.executor(), self_);
  }
  summary.is_whole = steps_.done() == options().updates.steps;
  summary.peak_memory_bytes = last_.peak_memory_bytes;
  summary.used_memory_bytes = times_.used_memory_bytes();
  return summary;
}

StepMetrics Trainer::train_step(std::int64_t step) {
  if (!steps_.is_closed()) steps_.close();  // run() would report it again
  run_step(step);
  steps_.close();
  if (self_.job.canonical) last_.parameters_hash = hash_parameters();
  return last_;
}

void Trainer::run_step(std::int64_t step) {
  steps_.begin(step + 1);
  model_.inject_bit_flip("step", 0);  // For tests, as all calls of inject_bit_flip() and fault_point()
  loader_.begin_step(step);
  if (!std::exchange(is_warm_, true)) {
    warm_up_device(step);
    // Connects the sums over ranks that share layers (tensor parallelism) too. A step zeroes gradients first.
    if (!self_.device.is_cpu()) model_.complete_gradients();
  }
  const double sums_before = self_.tensor ? self_.tensor->seconds() : 0;
  const double start = monotonic_seconds();
  if (tracer_) tracer_->begin_step(step);
  StepHooks hooks = hooks_of(step);
  if (shared_ != nullptr) hooks.shared = shared_->numbers_of(step + 1, self_.job.launched_rank(rank()));
  const StepResult result = driver_.train(program_of(step), hooks, loader_.dealt(step)->micro_batch_at);
  note_metrics(result, monotonic_seconds() - start);
  if (!self_.device.is_cpu()) accelerator().name_range("");
  // After note_metrics(): the weights of this rank have the update, so the step must count before the rank leaves.
  if (shared_ != nullptr) {
    TransitTimes links;
    for (const auto& [from, time] : driver_.executor().take_transit_times())
      links.emplace(self_.job.launched_rank(from), time);
    shared_->note_step(driver_.executor().op_times(), last_.step_seconds, links);
  }
  if (unshared_) std::rethrow_exception(std::exchange(unshared_, nullptr));
  if (self_.tensor) last_.op_sum_seconds = self_.tensor->seconds() - sums_before;
  model_.inject_bit_flip("updated", 0);
  model_.inject_bit_flip("moments", 1);
}

/// An asynchronous schedule has one program from flush to flush; a step is a piece of it.
std::vector<Instruction> Trainer::program_of(std::int64_t step) const {
  const JobShape& job = self_.job;
  if (!job.run.schedule.updates) return job.programs.training.workers[self_.place.worker.index()];
  const auto [first, steps] = self_.job.flush_interval(step);
  return job.programs.runs.at(steps).piece(self_.place.worker.index(), step - first, first);
}

StepHooks Trainer::hooks_of(std::int64_t step) {
  const Schedule& schedule = self_.job.run.schedule;
  const std::int64_t n = schedule.micro_batches;
  const std::int64_t first = schedule.updates ? 0 : step;  // Asynchronous: micro-batches are numbered across steps
  StepHooks hooks{
      .step = first + 1,
      .load =
          [this, first, n](StageId stage, MicroBatchId id) {
            return loader_.training(first + id.value() / n, stage, MicroBatchId(id.value() % n));
          },
      .update = {
          .all_stages = [this, step](double norm) { update(step, norm); },
          .one_stage = [this](StageId stage, MicroBatchId last, double norm) { update_stage(stage, last, norm); },
          .skip_non_finite = losses_.skip_hook(step + 1),
          .is_left_out = losses_.leaves_out(step + 1)},
      .observation = progress_.observe(step + 1),
      .recording = {.record = options().numbers.cuda_graphs ? graph_capture_on(accelerator()) : CaptureGraph()},
      .votes = checkpointer_ ? &checkpointer_->votes() : nullptr,
  };
  hooks.observation.on_instruction = [this](const Instruction& instruction) { note_instruction(instruction); };
  hooks.observation.used_memory = used_memory_of(self_.device);
  hooks.observation.tracer = tracer_ ? &*tracer_ : nullptr;
  if (step + 1 < options().updates.steps) {
    hooks.recording.load_next = [this, step](StageId stage, MicroBatchId id) {
      return loader_.training(step + 1, stage, id);
    };
  }
  return hooks;
}

void Trainer::note_instruction(const Instruction& instruction) {
  if (instruction.kind == InstructionKind::UpdateWeights) model_.complete_gradients(instruction.op.stage);
  if (instruction.kind == InstructionKind::ReduceScalars) {  // A synchronous schedule has all gradients here
    if (options().recovery.watches_weights()) replicas_.require_unchanged();
    if (!self_.job.run.schedule.updates) model_.complete_gradients();
    replacement_.note_gradients_complete(steps_.step());
  }
  // The host has waited for all ops of the step.
  if (instruction.kind == InstructionKind::OptimizerStep) {
    times_.read_updates();
    if (self_.tensor) self_.tensor->read_seconds();
  }
  if (!self_.device.is_cpu()) accelerator().name_range(driver_.executor().current());
  progress_.note({RankProgress::Phase::Steps, steps_.step(), instruction});
}

void Trainer::update(std::int64_t step, double gradient_norm) {
  const TimeMark begin(self_.device);
  replicas_.forget();
  try {
    driver_.update(model_.optimizer(), step, gradient_norm);
  } catch (const TransportError&) {
    // Two ranks update each shard of the optimizer state if the run outlives lost ranks.
    if (!self_.job.has_second_shards) throw;
    unshared_ = std::current_exception();  // The step counts as updated; rejoin() shares the update
  }
  model_.update_copies();
  times_.note_update(begin, self_.device);
}

void Trainer::update_stage(StageId stage, MicroBatchId last, double gradient_norm) {
  const TimeMark begin(at::kCPU);  // The host does not wait for a single update
  driver_.update(model_.optimizer(stage), last.value() / self_.job.run.schedule.micro_batches, gradient_norm);
  times_.note_update(begin, at::kCPU);
}

void Trainer::note_metrics(const StepResult& result, double seconds) {
  StepMetrics metrics;
  metrics.step = steps_.step();
  metrics.loss = result.loss;
  metrics.gradient_norm = result.gradient_norm;
  metrics.learning_rate = driver_.learning_rate(metrics.step - 1);
  metrics.tokens = self_.job.run.mini_batch() * options().data.sequence;
  metrics.step_seconds = seconds;
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / seconds;
  metrics.peak_memory_bytes = result.peak_memory_bytes;
  if (!self_.device.is_cpu()) {
    metrics.used_memory_bytes = result.used_memory_bytes;
    metrics.allocation_retries = result.allocation_retries;
  }
  // Only of a rerouted run, whose number of ranks changes.
  if (self_.job.lost_ranks > 0) metrics.workers = self_.job.num_ranks();
  metrics.factors = self_.job.factors;
  for (const auto& [one, other, delay] : self_.job.delays)
    metrics.delays.push_back({static_cast<double>(one.value()), static_cast<double>(other.value()), delay});
  metrics.is_skipped = result.is_skipped;
  metrics.skipped = last_.skipped + (result.is_skipped ? 1 : 0);
  metrics.updates = last_.updates + (result.is_skipped ? 0 : self_.job.run.updates());
  // A spike throws here, before the step counts as updated: no checkpoint has it.
  losses_.note(metrics, last_.loss_watch, [&] {
    if (checkpointer_) checkpointer_->complete();
  });
  last_ = std::move(metrics);
  steps_.note_update();
}

/// Returns whether the run continues.
bool Trainer::close_step(const OnStep& on_step) {
  const auto is_due = [&](std::int64_t every) {
    return every > 0 && (last_.step % every == 0 || last_.step == options().updates.steps);
  };
  // Before the validation, whose loss of a corrupted copy would mean nothing.
  if (is_due(options().recovery.steps_between_comparisons())) replicas_.compare(last_.step);
  if (self_.job.canonical) last_.parameters_hash = hash_parameters();
  if (is_due(options().data.validate_every)) last_.validation_loss = validation_loss();
  if (is_due(options().data.sample_every)) last_.sample = sample_text();
  // Before a save, so that no checkpoint has a step that the metrics lack.
  on_step(last_);
  const bool continues = !checkpointer_ || save_if_due();
  steps_.close();
  return continues;
}

/// Returns whether the run continues. Compares replicas before a save, which must not contain a corrupted one.
bool Trainer::save_if_due() {
  const bool is_due = checkpointer_->is_due(last_.step);
  const bool stops = checkpointer_->stops_after(last_.step);
  if ((is_due || stops) && last_.step % options().recovery.steps_between_comparisons() != 0)
    replicas_.compare(last_.step);
  if (is_due) checkpointer_->save(last_);
  return !stops;
}

std::string Trainer::save_in(const std::string& folder) const {
  Job job = self_.job;
  job.first_step = -1;  // No step is saved there
  const auto name_of = [&](double number) { return number == 1 ? folder : fmt::format("{}.{:.0f}", folder, number); };
  // Rank 0 chooses the name for all.
  std::array<double, 1> number{rank() == RankId(0) ? 1.0 : 0.0};
  std::error_code error;
  while (number[0] > 0 && std::filesystem::exists(std::filesystem::symlink_status(name_of(number[0]), error)))
    ++number[0];
  self_.transport.all_sum(number);
  job.options.checkpoint.folder = name_of(number[0]);
  std::optional<Checkpointer> saver;
  // Rank 0 removes leftovers in the folder, so the others write after it.
  sum_in_agreement(self_.transport, [&] {
    saver.emplace(job, rank(), self_.transport, model_.groups(), model_.optimizer_state(), self_.tensor.get());
    return 0.0;
  });
  return saver->finish(last_) ? checkpoint_path(job.options.checkpoint.folder, last_.step) : "";
}

LoopState Trainer::loop_state() const {
  return {.last = last_,
          .skipped_in_row = losses_.skipped_in_row(),
          .first_step = steps_.first(),
          .plans = checkpointer_ ? checkpointer_->plans() : SavePlans{}};
}

void Trainer::trace(bool on, std::function<MemorySample()> sample_memory) {
  tracer_.reset();
  if (!on) return;
  tracer_.emplace(self_.job.programs.training.workers[self_.place.worker.index()].size(),
                  self_.job.run.worker_groups().size(), std::move(sample_memory), self_.device);
}

std::string Trainer::current() const {
  const std::string instruction = driver_.executor().current();
  return instruction.empty() ? fmt::format("step {}", steps_.step()) : instruction;
}

std::string Trainer::hash_parameters() {
  return parameters_hash(self_.job.parameters, model_.own_groups(), self_.transport,
                         self_.job.ranks().place(self_.world_rank));
}

}  // namespace chimera
