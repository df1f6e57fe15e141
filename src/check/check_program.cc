// ProgramRun executes the program. `Progress` has the position of each worker, and the parts Transfers, Reductions and
// Computation check the instructions of their subject with the state that run_state.h and collectives.h describe.
// step() returns false for an instruction that blocks; its worker is tried again when another worker calls wake(). An
// instruction with an error is reported and counts as done, so that one run finds as many errors as possible.

#include "check/check_program.h"

#include <limits>

#include "check/check_schedule.h"
#include "check/collectives.h"
#include "check/run_state.h"
#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {
namespace {

constexpr const char* kAlreadySummed = "the norms and losses have been summed";

/// What the parts of a run share: each worker's position, the workers to retry, and the violations so far.
struct Progress {
  explicit Progress(const Program& run) : program(run), next(run.workers.size(), 0), is_ready(next.size(), true) {
    for (std::size_t w = next.size(); w-- > 0;) ready.push_back(w);
  }

  template <class... Parts>
  void report(ViolationKind kind, std::size_t worker, fmt::format_string<Parts...> format, Parts... parts) {
    const Place place{worker, next[worker]};
    findings.add(kind, {place}, [&] {
      return fmt::format("worker {}, instruction {} ({}): {}", worker, place.position,
                         to_text(program.workers[worker][place.position], program.slices),
                         fmt::vformat(format, fmt::make_format_args(parts...)));
    });
  }

  void bad(std::size_t worker, const char* what) { report(ViolationKind::BadDataFlow, worker, "{}", what); }

  void wake(std::size_t worker) {
    if (is_ready[worker]) return;
    is_ready[worker] = true;
    ready.push_back(worker);
  }

  bool is_placed(std::size_t worker, const Op& op) {
    const WorkerId holder = program.placement.worker(op.replica, op.stage);
    if (holder.index() == worker) return true;
    report(ViolationKind::WrongWorker, worker, "stage {} of replica {} is on worker {}", op.stage.value(),
           op.replica.value(), holder.value());
    return false;
  }

  bool in_range(std::size_t worker, const Instruction& instruction) {
    if (instruction.kind == InstructionKind::ReduceScalars || instruction.kind == InstructionKind::OptimizerStep)
      return true;
    const auto require = [&](const char* what, std::int64_t value, std::int64_t count) {
      if (value >= 0 && value < count) return true;
      report(ViolationKind::OutOfRange, worker, "{} {} is not in 0 to {}", what, value, count - 1);
      return false;
    };
    if (is_all_reduce(instruction.kind))
      return require("stage", instruction.group.value(), program.stages + (program.tied ? 1 : 0));
    const Op& op = instruction.op;
    if (!require("stage", op.stage.value(), program.stages)) return false;
    if (!require("micro-batch", op.micro_batch.value(), program.micro_batches)) return false;
    if (!require("slice", op.slice, program.slices)) return false;
    if (is_transfer(instruction.kind)) {
      if (!require("worker", instruction.peer.value(), std::ssize(next))) return false;
      if (instruction.peer.index() != worker) return true;
      bad(worker, "a worker sends itself no messages");
      return false;
    }
    // Tensors are found by stage, micro-batch and slice, so only the other instructions need a valid replica.
    return require("replica", op.replica.value(), static_cast<std::int64_t>(program.placement.num_replicas()));
  }

  const Program& program;
  std::vector<std::size_t> next;   // [worker]: current instruction
  std::vector<std::size_t> ready;  // Workers to retry
  std::vector<bool> is_ready;      // [worker]: whether it is in `ready`
  bool trains = false;             // There is a backward, an all-reduce or an update
  Findings findings;
};

// A transfer happens when both ends have issued it at the heads of one queue. A mismatch breaks the queue: the
// transfers behind it would only repeat the error.
/// Checks the transfers: which send meets which receive, and that both ends wait.
class Transfers {
 public:
  Transfers(Progress& run, ProgramTensors& tensors, ChannelDiscipline discipline)
      : run_(run), tensors_(tensors), channels_(discipline), awaited_(run.next.size(), kNoTensor) {}

  // Each end of a transfer keeps its own record in the tensor, so that a missing wait of either end is found at the
  // end.
  void start(std::size_t worker, const Instruction& instruction, bool is_send) {
    Tensor& tensor = tensors_.at(instruction.op);
    TransferEnd& end = is_send ? tensor.send : tensor.receive;
    if (is_send && tensor.made_on != static_cast<std::int32_t>(worker))
      return run_.bad(worker, "the tensor is not made on this worker");
    if (end.worker != kNoWorker)
      return run_.report(ViolationKind::BadDataFlow, worker, "worker {} has started it before", end.worker);
    end.worker = static_cast<std::int32_t>(worker);
    end.peer = static_cast<std::int32_t>(instruction.peer.value());
    meet(worker, instruction, is_send, tensor);
  }

  /// Returns whether the transfer has happened, or blocks the worker.
  bool wait(std::size_t worker, const Instruction& instruction, bool is_send) {
    Tensor& tensor = tensors_.at(instruction.op);
    TransferEnd& end = is_send ? tensor.send : tensor.receive;
    if (end.worker != static_cast<std::int32_t>(worker) || end.peer != instruction.peer.value()) {
      // Goes on after the report: a worker that blocked here would only add a deadlock to the error.
      run_.bad(worker, "waits for a transfer that was not started on this worker");
      return true;
    }
    if (end.is_awaited) run_.bad(worker, "was waited for before");
    if (tensor.is_transferred) return end.is_awaited = true;
    awaited_[worker] = tensors_.number(instruction.op);
    return false;
  }

 private:
  static constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

  void meet(std::size_t worker, const Instruction& instruction, bool is_send, Tensor& own) {
    const StartedTransfer transfer{tensors_.number(instruction.op), static_cast<std::uint32_t>(worker),
                                   static_cast<std::uint32_t>(run_.next[worker]), is_send};
    const auto peer = static_cast<std::uint32_t>(instruction.peer.index());
    const auto other = channels_.start(transfer, peer);
    if (!other) return;
    // In a queue for both directions, two sends can meet, or two receives.
    if (other->tensor == transfer.tensor && other->is_send != is_send) {
      own.is_transferred = true;
      // A worker that has not yet reached its wait finds the transfer complete when it does.
      if (awaited_[other->worker] == transfer.tensor) run_.wake(other->worker);
      return;
    }
    // Matching goes on with other channels: one report for each broken channel is enough.
    channels_.break_channel(transfer, peer);
    const Place place{other->worker, other->position};
    run_.findings.add(ViolationKind::Mismatch, {{worker, run_.next[worker]}, place}, [&] {
      return fmt::format("worker {}, instruction {} ({}): does not match '{}' of worker {}", worker, run_.next[worker],
                         to_text(instruction, run_.program.slices),
                         to_text(run_.program.workers[place.worker][place.position], run_.program.slices),
                         place.worker);
    });
  }

  Progress& run_;
  ProgramTensors& tensors_;
  Channels channels_;
  std::vector<std::uint32_t> awaited_;  // [worker]: tensor of its last blocking wait
};

/// Checks all-reduces, sums of norms and losses, and optimizer steps.
class Reductions {
 public:
  Reductions(Progress& run, Collectives& collectives)
      : run_(run), collectives_(collectives), scalars_at_(run.next.size(), 0), num_steps_(run.next.size(), 0) {}

  void start_all_reduce(std::size_t worker, ParameterGroupId group) {
    run_.trains = true;
    const auto* held = collectives_.find(worker, group);
    if (held == nullptr) return run_.bad(worker, "the worker does not hold the stage");
    if (held->has_started) return run_.bad(worker, "has started before");
    if (collectives_.has_arrived(worker)) run_.bad(worker, kAlreadySummed);
    if (!collectives_.start(worker, group)) return;
    for (const WorkerId member : collectives_.members(group)) run_.wake(member.index());
  }

  bool wait_all_reduce(std::size_t worker, ParameterGroupId group) {
    const auto* held = collectives_.find(worker, group);
    if (held == nullptr || !held->has_started) {
      run_.bad(worker, "waits for an all-reduce that was not started on this worker");
      return true;
    }
    if (held->has_waited) run_.bad(worker, "was waited for before");
    if (!collectives_.is_complete(group)) return false;
    if (collectives_.has_arrived(worker)) run_.bad(worker, kAlreadySummed);
    collectives_.set_waited(worker, group);
    return true;
  }

  // A worker arrives once, at its first try of the instruction, and is retried when the last worker has arrived.
  bool reduce_scalars(std::size_t worker, std::int64_t step) {
    if (collectives_.arrivals(worker) == 0 || scalars_at_[worker] != run_.next[worker]) {
      if (collectives_.has_arrived(worker)) {
        run_.bad(worker, kAlreadySummed);
        return true;
      }
      if (!collectives_.joins(worker)) {
        run_.bad(worker, "the worker holds no stage");
        return true;
      }
      const std::int64_t next = collectives_.arrivals(worker);
      if (step != next)
        run_.report(ViolationKind::BadDataFlow, worker, "names step {}; the step to sum is {}", step, next);
      scalars_at_[worker] = run_.next[worker];
      collectives_.arrive(worker);
      // The last arrival completes the sum, for which all others wait.
      for (std::size_t w = 0; w < run_.next.size() && collectives_.all_arrived(worker); ++w) run_.wake(w);
    }
    return collectives_.all_arrived(worker);
  }

  void optimizer_step(std::size_t worker) {
    run_.trains = true;
    if (!collectives_.has_arrived(worker)) run_.bad(worker, "the norms have not been summed");
    if (num_steps_[worker]++ > 0) run_.bad(worker, "the weights have been updated");
  }

  void report_end(std::size_t worker, SummedStages summed, bool has_updates) {
    if (!collectives_.joins(worker)) return;
    if (!collectives_.has_arrived(worker))
      run_.findings.add_text(ViolationKind::BadDataFlow, "worker {} never sums norms and losses", worker);
    // A synchronous program has one OptimizerStep on each worker, a program with updates has none.
    if (run_.trains && (num_steps_[worker] == 0) != has_updates)
      run_.findings.add_text(ViolationKind::BadDataFlow, "worker {} {}", worker,
                             has_updates ? "updates its weights twice" : "never updates its weights");
    // With updates between ops, each update has its own all-reduce, which update_weights() checks.
    if (!run_.trains || has_updates) return;
    for (const ParameterGroupId group : collectives_.unfinished(worker, summed == SummedStages::All))
      run_.findings.add_text(ViolationKind::BadDataFlow,
                             "worker {} does not start, or does not wait for, the all-reduce of stage {}", worker,
                             group.value());
  }

 private:
  Progress& run_;
  Collectives& collectives_;
  std::vector<std::size_t> scalars_at_;  // [worker]: position of its current ReduceScalars
  std::vector<std::size_t> num_steps_;   // [worker]: optimizer steps
};

/// Checks ops: their inputs, weight versions and activations.
class Computation {
 public:
  Computation(Progress& run, ProgramTensors& tensors, Collectives& collectives)
      : run_(run), tensors_(tensors), collectives_(collectives), versions_(run.program), offloaded_(run.program) {}

  [[nodiscard]] bool has_updates() const { return versions_.any_updates(); }

  void compute(std::size_t worker, const Op& op) {
    Tensor& result = tensors_.at(op);
    if (result.made_on != kNoWorker)
      run_.report(ViolationKind::DoubledOp, worker, "has run on worker {}", result.made_on);
    result.made_on = static_cast<std::int32_t>(worker);
    // The checks that follow would only repeat the error of a wrong worker.
    if (!run_.is_placed(worker, op)) return;
    check_inputs(worker, op);
    check_version(worker, op);
    check_step(worker, op);
    require_on_device(worker, op);
    offloaded_.compute(worker, op);
    check_device(worker);
    if (op.kind != OpKind::Forward) run_.trains = true;
    if (!gives_weight_gradient(op.kind)) return;
    versions_.add_gradient(op);
    if (collectives_.find(worker, parameters_of(op.stage))->has_started)
      run_.bad(worker, "the all-reduce of its stage has started");
    if (run_.program.tied && uses_tied_matrix(op.stage, run_.program.stages) &&
        collectives_.find(worker, tied_matrix(run_.program.stages))->has_started)
      run_.bad(worker, "the all-reduce of the tied matrix has started");
  }

  // Checks at the first op of a pair that the second one has its inputs too: both start together.
  void check_pair(std::size_t worker) {
    const auto& instructions = run_.program.workers[worker];
    const std::size_t next = run_.next[worker] + 1;
    const bool is_op = next < instructions.size() && instructions[next].kind == InstructionKind::Compute;
    if (!is_op || instructions[next].op.paired) return run_.bad(worker, "the first of a pair without a second one");
    const Op& second = instructions[next].op;
    if (run_.program.slices > 1) return run_.bad(worker, "paired; a program with slices has no pairs");
    if (second.micro_batch == instructions[next - 1].op.micro_batch)
      run_.bad(worker, "a pair of one micro-batch");
    else if (run_.in_range(worker, instructions[next]))
      check_inputs(worker, second);
  }

  void recompute(std::size_t worker, const Op& op) {
    if (!gives_input_gradient(op.kind)) return run_.bad(worker, "only B and I need a forward");
    if (!run_.is_placed(worker, op)) return;
    check_version(worker, op);
    require_on_device(worker, op);
    if (!has_run(worker, OpKind::Forward, op)) run_.bad(worker, "its forward has not run on this worker");
    if (has_run(worker, op.kind, op)) run_.bad(worker, "its backward has run before");
  }

  void offload(std::size_t worker, const Op& op) {
    if (op.kind != OpKind::Forward) return run_.bad(worker, "only an F makes activations");
    if (!run_.is_placed(worker, op)) return;
    if (!has_run(worker, OpKind::Forward, op)) return run_.bad(worker, "the forward has not run on this worker");
    if (has_run(worker, OpKind::Backward, op) || has_run(worker, OpKind::BackwardInput, op))
      return run_.bad(worker, "its backward has run before");
    if (offloaded_.in_host(op)) return run_.bad(worker, "its activations are in host memory");
    offloaded_.offload(worker, op);
  }

  void load(std::size_t worker, const Op& op) {
    if (!gives_input_gradient(op.kind)) return run_.bad(worker, "only B and I need activations");
    if (!run_.is_placed(worker, op)) return;
    if (!offloaded_.in_host(op)) return run_.bad(worker, "its activations are not in host memory");
    offloaded_.load(worker, op);
    check_device(worker);
  }

  void update_weights(std::size_t worker, const Op& op) {
    run_.trains = true;
    if (!run_.is_placed(worker, op)) return;
    check_step(worker, op);
    if (op.weight_version != versions_.newest(op) + 1)
      run_.report(ViolationKind::UpdateOrder, worker, "the stage has had {} updates", versions_.newest(op));
    if (versions_.gradients(op) == 0) run_.bad(worker, "the stage has no new gradients since its last update");
    versions_.update(op);
    const ParameterGroupId group = parameters_of(op.stage);
    const auto* held = collectives_.find(worker, group);
    // An update needs no all-reduce if the stage is on one worker. If there is one, it must be complete: the next
    // update of the stage starts another.
    if (!held->has_started) return;
    if (collectives_.members(group).size() > 1)
      run_.bad(worker, "several workers sum the stage's gradients for one update of all");
    else if (!held->has_waited)
      run_.bad(worker, "the all-reduce of the stage was not waited for");
    else
      collectives_.restart(worker, group);
  }

  void drop_weights(std::size_t worker, const Op& op) {
    if (!run_.is_placed(worker, op)) return;
    check_version(worker, op);
    versions_.drop(op);
  }

  void report_end() {
    offloaded_.report_unfinished(run_.findings);
    if (has_updates()) versions_.report_unfinished(run_.findings);
  }

 private:
  /// Returns whether the op of this kind at the stage, micro-batch and slice of `op` has run on the worker.
  [[nodiscard]] bool has_run(std::size_t worker, OpKind kind, const Op& op) const {
    return tensors_.is_on(worker, kind, op.stage.value(), op.micro_batch, op.slice);
  }
  void check_version(std::size_t worker, const Op& op) {
    if (versions_.holds(op)) return;
    run_.report(ViolationKind::MissingVersion, worker, "weight version {} of its stage is not stored; the newest is {}",
                op.weight_version, versions_.newest(op));
  }

  void check_step(std::size_t worker, const Op& op) {
    // Steps have equally many micro-batches. The sum of a step must not come before its last op.
    const std::int64_t step = op.micro_batch.value() / (run_.program.micro_batches / run_.program.steps);
    if (step < collectives_.arrivals(worker)) run_.bad(worker, kAlreadySummed);
  }

  void require_on_device(std::size_t worker, const Op& op) {
    if (gives_input_gradient(op.kind) && offloaded_.in_host(op)) run_.bad(worker, "its activations are in host memory");
  }

  void check_device(std::size_t worker) {
    if (!offloaded_.exceeds_limit(worker)) return;
    run_.report(ViolationKind::BadDataFlow, worker, "more than {} micro-batches of offloaded stages are on the device",
                run_.program.most_on_device);
  }

  void check_inputs(std::size_t worker, const Op& op) {
    const std::int64_t stage = op.stage.value();
    const auto is_on = [&](OpKind kind, std::int64_t at, std::int64_t slice) {
      return tensors_.is_on(worker, kind, at, op.micro_batch, slice);
    };
    const auto has_gradient = [&](std::int64_t at, std::int64_t slice) {
      return is_on(OpKind::Backward, at, slice) || is_on(OpKind::BackwardInput, at, slice);
    };
    if (op.kind == OpKind::Forward) {
      if (stage > 0 && !is_on(OpKind::Forward, stage - 1, op.slice))
        run_.bad(worker, "its input is not on this worker");
      if (op.slice > 0 && !is_on(OpKind::Forward, stage, op.slice - 1))
        run_.bad(worker, "the forward of the slice before has not run on this worker");
    } else if (op.kind == OpKind::BackwardWeight) {
      if (!is_on(OpKind::BackwardInput, stage, op.slice))
        run_.bad(worker, "its input gradient has not run on this worker");
    } else {
      if (!is_on(OpKind::Forward, stage, op.slice)) run_.bad(worker, "its forward has not run on this worker");
      if (stage + 1 < run_.program.stages && !has_gradient(stage + 1, op.slice))
        run_.bad(worker, "the gradient of its output is not on this worker");
      if (op.slice + 1 < run_.program.slices && !has_gradient(stage, op.slice + 1))
        run_.bad(worker, "the backward of the next slice has not run on this worker");
    }
  }

  Progress& run_;
  ProgramTensors& tensors_;
  Collectives& collectives_;
  LiveVersions versions_;
  OffloadedActivations offloaded_;
};

// Runs one worker until it blocks, then the next one that is ready. An instruction that unblocks another worker puts it
// into Progress::ready, so each blocked instruction is tried once per event that it waits for, and the run is linear.
// The order of the workers does not matter (check_program.h).
class ProgramRun {
 public:
  ProgramRun(const Program& program, ChannelDiscipline discipline, SummedStages summed)
      : summed_(summed),
        run_(program),
        tensors_(program),
        collectives_(program),
        transfers_(run_, tensors_, discipline) {}

  std::vector<Violation> run() {
    while (!run_.ready.empty()) {
      const std::size_t worker = run_.ready.back();
      run_.ready.pop_back();
      run_.is_ready[worker] = false;
      const auto& instructions = run_.program.workers[worker];
      std::size_t& next = run_.next[worker];
      while (next < instructions.size() && step(worker, instructions[next])) ++next;
    }
    collectives_.check_order(run_.findings);
    // After a deadlock, what is missing at the end is a consequence, and not worth a report.
    if (!report_deadlock(run_.program, run_.next, collectives_, run_.findings)) report_unfinished();
    return run_.findings.take();
  }

 private:
  /// Returns false if the instruction blocks.
  bool step(std::size_t worker, const Instruction& instruction) {
    if (!run_.in_range(worker, instruction)) return true;
    switch (instruction.kind) {
      case InstructionKind::Compute:
        if (begins_pair(instruction)) computation_.check_pair(worker);
        computation_.compute(worker, instruction.op);
        return true;
      case InstructionKind::Recompute: computation_.recompute(worker, instruction.op); return true;
      case InstructionKind::StartSend: transfers_.start(worker, instruction, true); return true;
      case InstructionKind::PostReceive: transfers_.start(worker, instruction, false); return true;
      case InstructionKind::WaitSend: return transfers_.wait(worker, instruction, true);
      case InstructionKind::WaitReceive: return transfers_.wait(worker, instruction, false);
      case InstructionKind::StartAllReduce: reductions_.start_all_reduce(worker, instruction.group); return true;
      case InstructionKind::WaitAllReduce: return reductions_.wait_all_reduce(worker, instruction.group);
      case InstructionKind::ReduceScalars: return reductions_.reduce_scalars(worker, instruction.step);
      case InstructionKind::OptimizerStep: reductions_.optimizer_step(worker); return true;
      case InstructionKind::UpdateWeights: computation_.update_weights(worker, instruction.op); return true;
      case InstructionKind::DropWeights: computation_.drop_weights(worker, instruction.op); return true;
      case InstructionKind::Offload: computation_.offload(worker, instruction.op); return true;
      case InstructionKind::Load: computation_.load(worker, instruction.op); return true;
    }
    return true;
  }

  void report_unfinished() {
    tensors_.report_unfinished(run_.trains, run_.findings);
    computation_.report_end();
    for (std::size_t w = 0; w < run_.next.size(); ++w) reductions_.report_end(w, summed_, computation_.has_updates());
  }

  SummedStages summed_;
  Progress run_;
  ProgramTensors tensors_;
  Collectives collectives_;
  Transfers transfers_;
  Reductions reductions_{run_, collectives_};
  Computation computation_{run_, tensors_, collectives_};
};

}  // namespace

std::vector<Violation> check(const Program& program, ChannelDiscipline discipline, SummedStages summed) {
  Findings findings;
  check_placement(program.placement, program.stages, program.micro_batches, program.slices, program.workers.size(),
                  findings);
  if (program.steps < 1 || program.micro_batches % program.steps != 0)
    findings.add_text(ViolationKind::OutOfRange, "{} micro-batches do not form {} steps", program.micro_batches,
                      program.steps);
  // The run indexes its tables by worker, replica, stage and micro-batch without further checks.
  if (!findings.empty()) return findings.take();
  return ProgramRun(program, discipline, summed).run();
}

}  // namespace chimera
