#include "runtime/executor.h"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <torch/csrc/autograd/autograd.h>
#include <algorithm>
#include <utility>

#include "core/fault_point.h"

namespace chimera {

HelperThread::HelperThread() : thread_([this] { loop(); }) {}

HelperThread::~HelperThread() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::future<void> HelperThread::begin(const std::function<void()>& work) {
  std::packaged_task<void()> task([work, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    work();
  });
  std::future<void> end = task.get_future();
  {
    const std::scoped_lock lock(mutex_);
    next_ = std::move(task);
  }
  changed_.notify_one();
  return end;
}

void HelperThread::loop() {
  for (;;) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || next_; });
      if (!next_) return;
      task = std::move(*std::exchange(next_, std::nullopt));
    }
    task();
  }
}

namespace {

bool has_backward(const std::vector<Instruction>& program) {
  return std::any_of(program.begin(), program.end(), [](const Instruction& instruction) {
    return instruction.kind == InstructionKind::OptimizerStep || instruction.kind == InstructionKind::UpdateWeights;
  });
}

Op at_stage(Op op, std::int64_t stage) {
  op.stage = StageId(stage);
  return op;
}

Op forward_of(Op op) {
  op.kind = OpKind::Forward;
  return op;
}

Op first_slice_of(Op op) {
  op.slice = 0;
  return op;
}

std::vector<TensorSpec> slices_of(const TensorSpec& whole, const std::vector<std::int64_t>& bounds) {
  std::vector<TensorSpec> slices;
  for (std::size_t end = 1; end < bounds.size(); ++end) {
    slices.push_back(whole);
    slices.back().sizes.at(1) = bounds[end] - bounds[end - 1];
  }
  return slices;
}

}  // namespace

Executor::Executor(WorkerId worker, std::map<StageId, Stage*> stages, Transport& transport, TensorSpec message,
                   ProgramShape shape, ParameterGroup* tied)
    : worker_(worker),
      stages_(std::move(stages)),
      transport_(transport),
      message_(std::move(message)),
      shape_(std::move(shape)),
      slices_(slices_of(message_, shape_.slice_bounds)),
      last_stage_(shape_.stages() - 1),
      norms_(shape_, worker, groups_),
      op_times_(shape_.stages(), std::max<std::int64_t>(std::ssize(slices_), 1)) {
  for (const auto& [id, stage] : stages_) groups_[parameters_of(id)] = stage;
  if (tied != nullptr) groups_[tied_matrix(shape_.stages())] = tied;
  for (const auto& [id, group] : groups_) {
    std::vector<std::int64_t>& sizes = shards_[id];
    if (!shape_.scatters) continue;
    sizes = shard_sizes(*group, shape_.ranks.ranks_of({shape_.groups[id.index()]}).front().size());
  }
  if (shape_.canonical != nullptr) canonical_.emplace(shape_, stages_, tied);
}

/// Leaves 21 bits to the stage, as models have fewer layers.
Executor::Key Executor::key(const Op& op) {
  static_assert(kMostSlices <= 1 << 10);
  return (static_cast<Key>(op.kind) << 62U) | (static_cast<Key>(op.slice) << 52U) |
         (static_cast<Key>(op.stage.value()) << 31U) | static_cast<Key>(op.micro_batch.value());
}

StepResult Executor::run(const std::vector<Instruction>& program, const StepHooks& hooks) {
  begin(program);
  result_.is_skipped = hooks.leaves_out_update;
  std::span<const Instruction> rest(program);
  if (hooks.record && trains_ && !recorded_.is_before()) {
    const auto sums = std::ranges::find(rest, InstructionKind::ReduceScalars, &Instruction::kind);
    const auto repeated = static_cast<std::size_t>(sums - rest.begin());
    repeat_part(rest.first(repeated), hooks);
    if (hooks.load_next) recorded_.load_next(rest.first(repeated), hooks.load_next);
    rest = rest.subspan(repeated);
  }
  run_part(rest, hooks);
  if (hooks.tracer != nullptr) hooks.tracer->mark();
  current_.reset();
  return std::move(result_);
}

void Executor::run_part(std::span<const Instruction> part, const StepHooks& hooks) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    note(part[i], hooks);
    if (begins_pair(part[i])) {
      note(part[i + 1], hooks);
      compute_pair(part[i], part[i + 1], hooks);
      ++i;
    } else {
      execute(part[i], hooks);
    }
  }
}

/// All transfers and sums end before ReduceScalars, so a recording leaves nothing in flight.
void Executor::repeat_part(std::span<const Instruction> part, const StepHooks& hooks) {
  note(part.front(), hooks);
  const auto run = [&](std::span<const Instruction> recorded, const RecordedSteps::Load& load) {
    StepHooks silent = hooks;
    silent.on_instruction = {};
    silent.load = load;
    run_part(recorded, silent);
  };
  recorded_.run(part, hooks.load, hooks.record, run, losses_);
}

void Executor::note(const Instruction& instruction, const StepHooks& hooks) {
  current_ = instruction;
  if (hooks.on_instruction) hooks.on_instruction(instruction);
  if (hooks.tracer != nullptr) hooks.tracer->mark();
}

void Executor::begin(const std::vector<Instruction>& program) {
  trains_ = has_backward(program);
  result_ = {};
  recomputed_.clear();
  offloaded_.clear();
  prepare_copies(program);
  for (const auto& [kind, op, peer, group, step] : program) {
    if (kind == InstructionKind::Recompute) recomputed_.insert(op.stage);
    if (kind == InstructionKind::Offload) offloaded_.insert(key(op));
    if (kind == InstructionKind::UpdateWeights && !versions_.contains(op.stage)) {
      stages_.at(op.stage)->zero_gradients();
      versions_.emplace(op.stage, WeightVersions(*stages_.at(op.stage), op.weight_version - 1));
    }
    if (kind == InstructionKind::OptimizerStep) {
      for (const auto& [id, parameters] : groups_) parameters->zero_gradients();
    }
  }
  if (trains_) return;
  for (auto& [id, versions] : versions_) versions.use(versions.newest());
}

void Executor::prepare_copies(const std::vector<Instruction>& program) {
  const bool offloads = std::ranges::find(program, InstructionKind::Offload, &Instruction::kind) != program.end();
  if (!offloads || copies_ != nullptr) return;
  copies_ = std::make_shared<HostCopies>(groups_.begin()->second->gradients().device());
}

void Executor::drop() {
  current_.reset();
  result_ = {};
  sends_.clear();
  receives_.clear();
  all_reduces_.clear();
  tensors_.clear();
  losses_.clear();
  weight_gradients_.clear();
  activations_.clear();
  carried_.clear();
  non_finite_.forget();
  recorded_ = {};
  if (canonical_) canonical_->drop();
}

void Executor::connect_sums() const {
  for (const auto& [id, group] : groups_) transport_.connect_sums(id, group->gradients(), shards_.at(id));
}

std::string Executor::current() const {
  return !current_ ? "" : to_text(*current_, std::max<std::int64_t>(std::ssize(slices_), 1));
}

/// Returns the spec of the tensor that an op sends: a forward's output, or a backward's input gradient.
const TensorSpec& Executor::message(const Op& maker) const {
  if (!slices_.empty()) return slices_[static_cast<std::size_t>(maker.slice)];
  if (shape_.boundaries.empty()) return message_;
  return shape_.boundaries[maker.stage.index() - (maker.kind == OpKind::Forward ? 0 : 1)];
}

void Executor::execute(const Instruction& instruction, const StepHooks& hooks) {
  const Op& op = instruction.op;
  switch (instruction.kind) {
    case InstructionKind::Compute: return compute(op, hooks);
    case InstructionKind::Recompute: return recompute(op, hooks);
    case InstructionKind::PostReceive:
      receives_.emplace(key(op), transport_.post_receive(shape_.rank(instruction.peer), message(op),
                                                         {step_of(op.micro_batch, hooks), op}));
      return;
    case InstructionKind::WaitReceive: return wait_receive(op);
    case InstructionKind::StartSend:
      sends_.emplace(key(op), transport_.start_send(shape_.rank(instruction.peer), take(op),
                                                    {step_of(op.micro_batch, hooks), op}));
      return;
    case InstructionKind::WaitSend: return wait_send(op);
    case InstructionKind::StartAllReduce: return start_all_reduce(instruction.group, hooks.tracer);
    case InstructionKind::WaitAllReduce: return wait_all_reduce(instruction.group);
    case InstructionKind::ReduceScalars: return reduce_scalars(instruction.step, hooks);
    case InstructionKind::OptimizerStep:
      fault_point("optimizer");
      if (!result_.is_skipped) hooks.optimizer_step(result_.gradient_norm);
      return;
    case InstructionKind::UpdateWeights: return update_weights(op, hooks);
    case InstructionKind::DropWeights: return versions_.at(op.stage).drop(op.weight_version);
    case InstructionKind::Offload: return offload(op);
    case InstructionKind::Load: return activations_.at(key(forward_of(op))).saved->load(*copies_);
  }
}

void Executor::compute(const Op& op, const StepHooks& hooks) {
  const Stopwatch stopwatch(shape_.counts_cpu_time);
  use_weights(op);
  const bool adds_to_block = canonical_ && gives_weight_gradient(op.kind);
  if (adds_to_block) canonical_->open(op);
  switch (op.kind) {
    case OpKind::Forward: {
      Forward forward = begin_forward(op, hooks);
      run(forward);
      end_forward(std::move(forward));
      break;
    }
    case OpKind::Backward: backward(op); break;
    case OpKind::BackwardInput: input_gradient(op); break;
    case OpKind::BackwardWeight: weight_gradient(op); break;
  }
  if (adds_to_block) canonical_->close(op);
  if (trains_) op_times_.add(op, stopwatch.elapsed());
}

void Executor::compute_pair(const Instruction& first, const Instruction& second, const StepHooks& hooks) {
  Forward forward = begin_forward(first.op, hooks);
  Duration duration;
  if (!helper_) helper_.emplace();
  std::future<void> end = helper_->begin([&] {
    const Stopwatch stopwatch(shape_.counts_cpu_time);
    run(forward);
    duration = stopwatch.elapsed();
  });
  try {
    compute(second.op, hooks);
  } catch (...) {
    end.wait();
    throw;
  }
  current_ = first;
  end.get();
  end_forward(std::move(forward));
  op_times_.add(first.op, duration);
}

Executor::Forward Executor::begin_forward(const Op& op, const StepHooks& hooks) {
  Forward forward{.op = op, .stage = stages_.at(op.stage), .is_spoiled = fault_point("forward")};
  at::Tensor& input = forward.activation.input;
  if (op.stage != StageId(0)) {
    // A leaf of this worker's own graph, as another worker may share the tensor.
    input = take(at_stage(op, op.stage.value() - 1)).detach();
    if (trains_) input.requires_grad_(true);
  }
  forward.keeps_graph = trains_ && !recomputed_.contains(op.stage);
  if (offloaded_.contains(key(op))) forward.activation.saved = std::make_unique<SavedTensors>();
  forward.batch = load(op, hooks);
  return forward;
}

MicroBatch Executor::load(const Op& op, const StepHooks& hooks) {
  MicroBatch batch = hooks.load(op.stage, op.micro_batch);
  if (slices_.empty()) return batch;
  const std::vector<std::int64_t>& bounds = shape_.slice_bounds;
  auto& carried = carried_[key(first_slice_of(forward_of(op)))];
  if (!carried) carried = std::make_shared<CarriedKeyValues>(bounds.back());
  const auto slice = static_cast<std::size_t>(op.slice);
  return slice_of(std::move(batch), bounds[slice], bounds[slice + 1], carried);
}

/// Frees the keys and values of a micro-batch on a stage after their last use: the backward of slice 0, or the last
/// slice's forward if there are no backwards.
void Executor::forget_carried(const Op& op) {
  const bool is_forward = op.kind == OpKind::Forward;
  if (slices_.empty() || is_forward == trains_) return;
  const std::int64_t last = std::ssize(slices_) - 1;
  if (op.slice == (is_forward ? last : 0)) carried_.erase(key(first_slice_of(forward_of(op))));
}

void Executor::end_forward(Forward forward) {
  const Op& op = forward.op;
  Activation& activation = forward.activation;
  if (forward.is_spoiled) spoil(activation.output);
  non_finite_.look(op, activation.output);
  if (op.stage == last_stage_) {
    at::Tensor& loss = losses_[op.micro_batch];
    loss = op.slice == 0 ? activation.output.detach() : loss + activation.output.detach();
  } else {
    tensors_[key(op)] = activation.output.detach().contiguous();
  }
  if (!forward.keeps_graph) activation.output.reset();
  if (trains_) activations_[key(op)] = std::move(activation);
  forget_carried(op);
}

void Executor::recompute(const Op& backward, const StepHooks& hooks) {
  const Stopwatch stopwatch(shape_.counts_cpu_time);
  const Op op = forward_of(backward);
  use_weights(op);
  Forward again{.op = op, .stage = stages_.at(op.stage), .batch = load(op, hooks)};
  Activation& activation = activations_.at(key(op));
  await_load(activation);
  again.activation.input = std::move(activation.input);
  run(again);
  activation = std::move(again.activation);
  op_times_.add_recomputation(op.stage, stopwatch.elapsed());
}

void Executor::offload(const Op& op) {
  Activation& activation = activations_.at(key(op));
  if (recomputed_.contains(op.stage)) {
    activation.saved_input = activation.saved->add(std::exchange(activation.input, {}).detach());
  }
  activation.saved->offload(*copies_);
}

void Executor::await_load(Activation& activation) {
  if (activation.saved == nullptr) return;
  activation.saved->await();
  activation.saved.reset();
  if (activation.saved_input) activation.input = std::exchange(activation.saved_input, {})->value.requires_grad_(true);
}

void Executor::run(Forward& forward) {
  const at::AutoGradMode mode(forward.keeps_graph);
  Activation& activation = forward.activation;
  if (forward.keeps_graph) activation.weight_gradients = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(activation.weight_gradients);
  const SavedTensors::Scope saved(activation.saved.get());
  activation.output = forward.stage->forward(activation.input, forward.batch);
  forward.batch = {};
}

void Executor::backward(const Op& op) { propagate(op, /*defer_weight_gradients=*/false); }

void Executor::input_gradient(const Op& op) {
  if (!canonical_) {
    weight_gradients_[key(forward_of(op))] = propagate(op, /*defer_weight_gradients=*/true).weight_gradients;
    return;
  }
  HiddenGradients hidden(*stages_.at(op.stage));
  auto owed = propagate(op, /*defer_weight_gradients=*/true).weight_gradients;
  hidden.show(*owed);
  weight_gradients_[key(forward_of(op))] = std::move(owed);
}

void Executor::weight_gradient(const Op& op) { weight_gradients_.extract(key(forward_of(op))).mapped()->run(); }

Executor::Activation Executor::propagate(const Op& op, bool defer_weight_gradients) {
  const bool spoiled = fault_point("backward");
  Activation activation = std::move(activations_.extract(key(forward_of(op))).mapped());
  await_load(activation);
  if (defer_weight_gradients) activation.weight_gradients->defer();
  at::Tensor gradient;
  if (op.stage != last_stage_) gradient = take_gradient(at_stage(op, op.stage.value() + 1));
  torch::autograd::backward({activation.output}, {gradient});
  if (op.stage != StageId(0)) {
    at::Tensor& passed_back = tensors_[key(op)] = activation.input.grad().contiguous();
    if (spoiled) spoil(passed_back);
    non_finite_.look(op, passed_back);
  }
  forget_carried(op);
  return activation;
}

at::Tensor Executor::take(const Op& maker) { return std::move(tensors_.extract(key(maker)).mapped()); }

at::Tensor Executor::take_gradient(Op maker) {
  for (const OpKind kind : {OpKind::Backward, OpKind::BackwardInput}) {  // the schedule has one of them
    maker.kind = kind;
    if (tensors_.contains(key(maker))) break;
  }
  return take(maker);
}

void Executor::wait_send(const Op& op) { sends_.extract(key(op)).mapped()->wait(); }

void Executor::wait_receive(const Op& op) { tensors_[key(op)] = receives_.extract(key(op)).mapped()->wait(); }

void Executor::start_all_reduce(ParameterGroupId id, Tracer* tracer) {
  if (fault_point("all-reduce")) spoil(groups_.at(id)->gradients());
  auto pending = start_sum(id);
  if (tracer != nullptr) pending->call_when_done(tracer->summed(id));
  all_reduces_.emplace(id, std::move(pending));
}

std::unique_ptr<Pending> Executor::start_sum(ParameterGroupId id) {
  ParameterGroup& group = *groups_.at(id);
  const SumOrder* order = canonical_ ? &shape_.canonical->orders[id.index()] : nullptr;
  std::vector<at::Tensor> parts;
  if (canonical_) {
    parts = canonical_->take(id);
  } else {
    group.add_accumulators();
  }
  return transport_.start_sum(id, {.gradients = group.gradients(),
                                   .parts = std::move(parts),
                                   .order = order,
                                   .counts = shape_.scatters ? shards_.at(id) : std::vector<std::int64_t>()});
}

void Executor::wait_all_reduce(ParameterGroupId id) { all_reduces_.extract(id).mapped()->wait(); }

void Executor::use_weights(const Op& op) {
  if (!trains_) return;
  if (const auto versions = versions_.find(op.stage); versions != versions_.end()) {
    versions->second.use(op.weight_version);
  }
}

void Executor::update_weights(const Op& op, const StepHooks& hooks) {
  fault_point("optimizer");
  const double norm = norms_.note_update(parameters_of(op.stage), step_of(op.micro_batch));
  versions_.at(op.stage).update([&] { hooks.update_weights(op.stage, op.micro_batch, norm); });
  stages_.at(op.stage)->zero_gradients();
}

}  // namespace chimera
