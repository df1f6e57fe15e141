#include "runtime/executor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/invariant.h"

namespace chimera {
namespace {

/// A program with backwards always ends in updates, of all stages together or of separate ones.
bool has_updates(const std::vector<Instruction>& program) {
  return std::ranges::any_of(program, [](const Instruction& instruction) {
    return instruction.kind == InstructionKind::OptimizerStep || instruction.kind == InstructionKind::UpdateWeights;
  });
}

}  // namespace

Executor::Executor(WorkerId worker, std::map<StageId, Stage*> stages, Transport& transport, TensorSpec message,
                   ProgramShape shape, ParameterGroup* tied)
    : worker_(worker, std::move(stages), transport, std::move(message), std::move(shape), tied),
      messages_(worker_),
      activations_(worker_.device()),
      sums_(worker_),
      ops_(worker_, messages_, activations_, sums_),
      reduction_(worker_) {}

StepResult Executor::run(const std::vector<Instruction>& program, const StepHooks& hooks) {
  begin(program);
  result_.is_skipped = hooks.update.is_left_out;
  // With --cuda-graphs, the steps after the first few repeat a recording (is_before() counts them). Only the part
  // before the step's sums launches the same kernels in each step. After it, the host reads the gradient norm and
  // decides about the update.
  std::span<const Instruction> rest(program);
  if (hooks.recording.record && trains_ && !recorded_.is_before()) {
    const auto sums = std::ranges::find(rest, InstructionKind::ReduceScalars, &Instruction::kind);
    const auto repeated = rest.first(static_cast<std::size_t>(sums - rest.begin()));
    repeat_part(repeated, hooks);
    if (hooks.recording.load_next) recorded_.load_next(repeated, hooks.recording.load_next);
    rest = rest.subspan(repeated.size());
  }
  run_part(rest, hooks);
  if (hooks.observation.tracer != nullptr) hooks.observation.tracer->mark();
  current_.reset();
  return std::move(result_);
}

void Executor::begin(const std::vector<Instruction>& program) {
  trains_ = has_updates(program);
  result_ = {};
  // The parts of the executor read from the program what they need to know in advance.
  device_ = worker_.device();
  ops_.begin(trains_, device_);
  activations_.begin(program);
  for (const auto& [kind, op, peer, group, step] : program) {
    if (kind == InstructionKind::UpdateWeights && !versions_.contains(op.stage)) {
      Stage& stage = worker_.stage(op);
      stage.zero_gradients();
      // The first update of a stage tells the number of its current version.
      versions_.emplace(op.stage, WeightVersions(stage, op.weight_version - 1));
    }
    // Without an optimizer step (validation), gradients stay as they are.
    if (kind == InstructionKind::OptimizerStep)
      for (const auto& [id, parameters] : worker_.groups) parameters->zero_gradients();
  }
  // A validation between steps of an asynchronous run reads the newest weights of every stage.
  if (trains_) return;
  for (auto& [id, versions] : versions_) versions.use(versions.newest());
}

void Executor::run_part(std::span<const Instruction> part, const StepHooks& hooks) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    note(part[i], hooks);
    if (begins_pair(part[i])) {  // Never in an asynchronous schedule, so there are no weight versions to choose
      // Both instructions of a pair are noted before either runs, since they run together; in traces, the first has no
      // end of its own.
      const Instruction& forward = part[i++];
      note(part[i], hooks);
      ops_.compute_pair(forward.op, part[i].op, hooks.load, [&] { current_ = forward; });
    } else {
      execute(part[i], hooks);
    }
  }
}

/// All transfers and sums end before ReduceScalars, so a recording leaves nothing in flight.
void Executor::repeat_part(std::span<const Instruction> part, const StepHooks& hooks) {
  note(part.front(), hooks);
  const auto run = [&](std::span<const Instruction> recorded, const LoadMicroBatch& load) {
    StepHooks silent = hooks;
    // The whole part counts as its first instruction.
    silent.observation.on_instruction = {};
    silent.load = load;
    // A graph contains no marks of time.
    ops_.time_ops(false);
    is_recording_ = true;
    run_part(recorded, silent);
    is_recording_ = false;
    ops_.time_ops(trains_);
  };
  recorded_.run(part, hooks.load, hooks.recording.record, run, ops_.losses());
}

void Executor::note(const Instruction& instruction, const StepHooks& hooks) {
  current_ = instruction;
  if (hooks.observation.on_instruction) hooks.observation.on_instruction(instruction);
  if (hooks.observation.tracer != nullptr) hooks.observation.tracer->mark();
}

std::string Executor::current() const { return current_ ? to_text(*current_, worker_.num_slices()) : ""; }

void Executor::execute(const Instruction& instruction, const StepHooks& hooks) {
  const Op& op = instruction.op;
  const auto timed = [&](double& total, const auto& wait) {
    if (!trains_ || is_recording_) return wait();
    const TimeMark begin(device_);
    wait();
    waiting_.note(begin, device_, [&total](double seconds) { total += seconds; });
  };
  // A program of an asynchronous schedule may have many steps, of which `hooks.step` is the first. The tag has the step
  // of the message, so that both ends can detect that they are out of step.
  const auto tagged_step = [&] { return hooks.step + worker_.step_of(op.micro_batch); };
  switch (instruction.kind) {
    case InstructionKind::Compute: use_weights(op); return ops_.compute(op, hooks.load);
    case InstructionKind::Recompute: use_weights(op); return ops_.recompute(op, hooks.load);
    case InstructionKind::PostReceive: return messages_.post_receive(op, instruction.peer, tagged_step());
    case InstructionKind::WaitReceive: return timed(waits_.messages, [&] { messages_.wait_receive(op); });
    case InstructionKind::StartSend: return messages_.start_send(op, instruction.peer, tagged_step());
    case InstructionKind::WaitSend: return timed(waits_.messages, [&] { messages_.wait_send(op); });
    case InstructionKind::StartAllReduce:
      // The host of a device cannot see when a sum ends.
      return sums_.start(instruction.group, device_.is_cpu() ? hooks.observation.tracer : nullptr);
    case InstructionKind::WaitAllReduce: return timed(waits_.sums, [&] { sums_.wait(instruction.group); });
    case InstructionKind::ReduceScalars: return timed(waits_.ranks, [&] { reduce_scalars(instruction.step, hooks); });
    case InstructionKind::OptimizerStep:
      fault_point("optimizer");
      if (!result_.is_skipped) hooks.update.all_stages(result_.gradient_norm);
      return;
    case InstructionKind::UpdateWeights: return update_weights(op, hooks);
    case InstructionKind::DropWeights: return versions_of(op).drop(op.weight_version);
    case InstructionKind::Offload: return activations_.offload(op);
    case InstructionKind::Load: return activations_.load(op);
  }
}

void Executor::reduce_scalars(std::int64_t step, const StepHooks& hooks) {
  std::vector<double> recordings;
  if (hooks.recording.record) recordings.push_back(recorded_.needs_recording() ? 1 : 0);
  StepSums sums = reduction_.sum(step, trains_, ops_.losses(), std::move(recordings), hooks);
  ops_.read_times();
  waiting_.read();
  if (hooks.observation.tracer != nullptr) hooks.observation.tracer->note_wait();
  // Votes and recordings travel in the same collective, because each collective costs a round trip.
  if (hooks.votes != nullptr) *hooks.votes = SaveVotes::unpack(sums.votes);
  std::ranges::copy(sums.shared, hooks.shared.begin());
  if (!sums.recordings.empty() && sums.recordings[0] > 0) recorded_.record_again();
  // Ops of later steps may have run already. Their results stay for the sums of their own step.
  std::vector<Op> suspects;
  std::erase_if(ops_.non_finite(), [&](const Op& op) {
    const bool has_ended = worker_.step_of(op.micro_batch) <= step;
    if (has_ended) suspects.push_back(op);
    return has_ended;
  });
  if (!sums.are_finite())
    handle_non_finite(reduction_.find_non_finite(sums.squares, suspects), hooks.step + step, hooks);
  // Added in the order of parameters on every rank, so that all ranks clip by the same bits.
  double square = 0;
  for (const double value : sums.squares) square += value;
  result_.gradient_norm = std::sqrt(square);
  result_.losses = std::move(sums.losses);
  result_.peak_memory_bytes = std::ranges::max(sums.peak_memory);
  result_.used_memory_bytes = std::ranges::max(sums.used_memory);
  result_.allocation_retries = std::ranges::max(sums.allocation_retries);
}

void Executor::handle_non_finite(const NonFiniteResult& source, std::int64_t step, const StepHooks& hooks) {
  const std::string what = fmt::format("{} is not finite in step {}", source.what, step);
  if (hooks.update.skip_non_finite) {
    hooks.update.skip_non_finite(what, source.is_own);
    result_.is_skipped = true;
    return;
  }
  // The error message names the current instruction, so it must name the op that made the value, not the sum that found
  // it. The launcher blames the rank by this instruction.
  if (source.op) current_ = {.kind = InstructionKind::Compute, .op = *source.op};
  if (source.is_own) throw Error(what + "; try a lower --learning-rate");
  std::array<double, 1> nothing{};
  worker_.transport.all_sum(nothing);  // Blocks until its worker has failed, so that no other worker ends first
  throw PeerLostError(what);
}

WeightVersions& Executor::versions_of(const Op& op) {
  const auto found = versions_.find(op.stage);
  if (found == versions_.end()) throw InternalError("the weight versions of " + name_of(op) + " are missing");
  return found->second;
}

void Executor::use_weights(const Op& op) {
  if (!trains_) return;
  if (const auto versions = versions_.find(op.stage); versions != versions_.end())
    versions->second.use(op.weight_version);
}

void Executor::update_weights(const Op& op, const StepHooks& hooks) {
  fault_point("optimizer");
  // The norm covers this stage alone: with asynchronous updates, no moment has the gradients of all stages.
  const double norm = reduction_.note_update(parameters_of(op.stage), worker_.step_of(op.micro_batch));
  versions_of(op).update([&] { hooks.update.one_stage(op.stage, op.micro_batch, norm); });
  worker_.stage(op).zero_gradients();
}

void Executor::drop() {
  current_.reset();
  result_ = {};
  messages_.drop();
  activations_.drop();
  sums_.drop();
  ops_.drop();
  waiting_.drop();
  is_recording_ = false;
  // A recording may contain sums and messages with ranks that are lost now.
  recorded_ = {};
}

void Executor::record_ops(const std::vector<Instruction>& program, const LoadMicroBatch& load,
                          const CaptureGraph& capture) {
  ops_.recorded().record(program, load, capture);
  for (const auto& [id, group] : worker_.groups) group->zero_gradients();
}

}  // namespace chimera
