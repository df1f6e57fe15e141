#include "check/check_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "check/channels.h"
#include "check/check_placement.h"
#include "check/collectives.h"
#include "check/findings.h"
#include "check/held_versions.h"
#include "check/program_tensors.h"

namespace chimera {
namespace {

constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

class ProgramRun {
 public:
  ProgramRun(const Program& program, ChannelDiscipline discipline, SummedStages summed)
      : program_(program),
        summed_(summed),
        channels_(program.workers.size(), discipline),
        next_(program.workers.size(), 0),
        is_ready_(program.workers.size(), true),
        awaited_(program.workers.size(), kNoTensor),
        tensors_(program),
        scalars_at_(program.workers.size(), 0),
        num_steps_(program.workers.size(), 0),
        collectives_(program),
        versions_(program) {}

  std::vector<Violation> run() {
    for (std::size_t w = next_.size(); w-- > 0;) ready_.push_back(w);
    while (!ready_.empty()) {
      const std::size_t worker = ready_.back();
      ready_.pop_back();
      is_ready_[worker] = false;
      const auto& instructions = program_.workers[worker];
      while (next_[worker] < instructions.size() && step(worker, instructions[next_[worker]])) ++next_[worker];
    }
    collectives_.check_order(findings_);
    if (!report_stuck(program_, next_, collectives_, findings_)) report_unfinished();
    return findings_.take();
  }

 private:
  template <class... Parts>
  void report(ViolationKind kind, std::size_t worker, fmt::format_string<Parts...> format, Parts... parts) {
    const Place place{worker, next_[worker]};
    findings_.add(kind, {place}, [&] {
      return fmt::format("worker {}, instruction {} ({}): {}", worker, place.position,
                         to_text(program_.workers[worker][place.position]),
                         fmt::vformat(format, fmt::make_format_args(parts...)));
    });
  }

  void bad(std::size_t worker, const char* what) { report(ViolationKind::BadDataFlow, worker, "{}", what); }

  void wake(std::size_t worker) {
    if (is_ready_[worker]) return;
    is_ready_[worker] = true;
    ready_.push_back(worker);
  }

  /// Runs the worker's next instruction; false where it blocks.
  bool step(std::size_t worker, const Instruction& instruction) {
    if (!in_range(worker, instruction)) return true;
    switch (instruction.kind) {
      case InstructionKind::Compute:
        if (begins_pair(instruction)) check_pair(worker);
        compute(worker, instruction.op);
        return true;
      case InstructionKind::Recompute: recompute(worker, instruction.op); return true;
      case InstructionKind::StartSend: start_send(worker, instruction); return true;
      case InstructionKind::PostReceive: post_receive(worker, instruction); return true;
      case InstructionKind::WaitSend: return wait_send(worker, instruction);
      case InstructionKind::WaitReceive: return wait_receive(worker, instruction);
      case InstructionKind::StartAllReduce: start_all_reduce(worker, instruction.group); return true;
      case InstructionKind::WaitAllReduce: return wait_all_reduce(worker, instruction.group);
      case InstructionKind::ReduceScalars: return reduce_scalars(worker, instruction.step);
      case InstructionKind::OptimizerStep: optimizer_step(worker); return true;
      case InstructionKind::UpdateWeights: update_weights(worker, instruction.op); return true;
      case InstructionKind::DropWeights: drop_weights(worker, instruction.op); return true;
    }
    return true;
  }

  bool in_range(std::size_t worker, const Instruction& instruction) {
    if (instruction.kind == InstructionKind::ReduceScalars || instruction.kind == InstructionKind::OptimizerStep) {
      return true;
    }
    const auto require = [&](const char* what, std::int64_t value, std::int64_t count) {
      if (value >= 0 && value < count) return true;
      report(ViolationKind::OutOfRange, worker, "{} {} is not in 0 to {}", what, value, count - 1);
      return false;
    };
    if (is_all_reduce(instruction.kind)) return require("stage", instruction.group.value(), collectives_.num_groups());
    const Op& op = instruction.op;
    if (!require("stage", op.stage.value(), program_.stages)) return false;
    if (!require("micro-batch", op.micro_batch.value(), program_.micro_batches)) return false;
    if (is_transfer(instruction.kind)) {
      const auto workers = static_cast<std::int64_t>(next_.size());
      if (!require("worker", instruction.peer.value(), workers)) return false;
      if (instruction.peer.index() != worker) return true;
      bad(worker, "a worker sends itself no messages");
      return false;
    }
    return require("replica", op.replica.value(), static_cast<std::int64_t>(program_.placement.num_replicas()));
  }

  bool is_on(std::size_t worker, OpKind kind, std::int64_t stage, MicroBatchId micro_batch) const {
    return tensors_.is_on(worker, kind, stage, micro_batch);
  }

  void compute(std::size_t worker, const Op& op) {
    Tensor& result = tensors_.at(op);
    if (result.made_on != kNobody) report(ViolationKind::DoubledOp, worker, "has run on worker {}", result.made_on);
    result.made_on = static_cast<std::int32_t>(worker);
    if (!is_placed(worker, op)) return;
    check_inputs(worker, op);
    check_version(worker, op);
    check_step(worker, op);
    if (op.kind != OpKind::Forward) trains_ = true;
    if (gives_weight_gradient(op.kind)) versions_.add_gradient(op);
    if (gives_weight_gradient(op.kind) && collectives_.has_started(worker, parameters_of(op.stage))) {
      bad(worker, "the all-reduce of its stage has started");
    }
    if (gives_weight_gradient(op.kind) && program_.tied && uses_tied_matrix(op.stage, program_.stages) &&
        collectives_.has_started(worker, tied_matrix(program_.stages))) {
      bad(worker, "the all-reduce of the tied matrix has started");
    }
  }

  /// What stands right behind the first op of a pair runs beside it, so it may not need that op.
  void check_pair(std::size_t worker) {
    const auto& instructions = program_.workers[worker];
    const std::size_t next = next_[worker] + 1;
    const bool is_op = next < instructions.size() && instructions[next].kind == InstructionKind::Compute;
    if (!is_op || instructions[next].op.paired) return bad(worker, "the first of a pair without a second one");
    const Op& second = instructions[next].op;
    if (second.micro_batch == instructions[next - 1].op.micro_batch) {
      bad(worker, "a pair of one micro-batch");
    } else if (in_range(worker, instructions[next])) {
      check_inputs(worker, second);
    }
  }

  void check_version(std::size_t worker, const Op& op) {
    if (versions_.holds(op)) return;
    report(ViolationKind::MissingVersion, worker, "weight version {} of its stage is not held; the newest is {}",
           op.weight_version, versions_.newest(op));
  }

  /// The step of the op's micro-batch is still to be summed.
  void check_step(std::size_t worker, const Op& op) {
    const std::int64_t step = op.micro_batch.value() / (program_.micro_batches / program_.steps);
    if (step < collectives_.arrivals(worker)) bad(worker, kAlreadySummed);
  }

  bool is_placed(std::size_t worker, const Op& op) {
    const WorkerId holder = program_.placement.worker(op.replica, op.stage);
    if (holder.index() == worker) return true;
    report(ViolationKind::WrongWorker, worker, "stage {} of replica {} is on worker {}", op.stage.value(),
           op.replica.value(), holder.value());
    return false;
  }

  void recompute(std::size_t worker, const Op& op) {
    if (!gives_input_gradient(op.kind)) return bad(worker, "only B and I need a forward");
    if (!is_placed(worker, op)) return;
    check_version(worker, op);
    const std::int64_t stage = op.stage.value();
    if (!is_on(worker, OpKind::Forward, stage, op.micro_batch)) bad(worker, "its forward has not run here");
    if (is_on(worker, op.kind, stage, op.micro_batch)) bad(worker, "its backward has run before");
  }

  void check_inputs(std::size_t worker, const Op& op) {
    const std::int64_t stage = op.stage.value();
    const MicroBatchId id = op.micro_batch;
    if (op.kind == OpKind::Forward) {
      if (stage > 0 && !is_on(worker, OpKind::Forward, stage - 1, id)) bad(worker, "its input is not here");
    } else if (op.kind == OpKind::BackwardWeight) {
      if (!is_on(worker, OpKind::BackwardInput, stage, id)) bad(worker, "its input gradient has not run here");
    } else {
      if (!is_on(worker, OpKind::Forward, stage, id)) bad(worker, "its forward has not run here");
      if (stage + 1 < program_.stages && !is_on(worker, OpKind::Backward, stage + 1, id) &&
          !is_on(worker, OpKind::BackwardInput, stage + 1, id)) {
        bad(worker, "the gradient of its output is not here");
      }
    }
  }

  Issue issue_of(std::size_t worker, const Op& op, bool is_send) const {
    return {tensors_.number(op), static_cast<std::uint32_t>(worker), static_cast<std::uint32_t>(next_[worker]),
            is_send};
  }

  void start_send(std::size_t worker, const Instruction& instruction) {
    Tensor& sent = tensors_.at(instruction.op);
    if (sent.made_on != static_cast<std::int32_t>(worker)) return bad(worker, "the tensor is not made here");
    if (sent.sent_to != kNobody) return report(ViolationKind::BadDataFlow, worker, "was sent to {}", sent.sent_to);
    sent.sent_to = static_cast<std::int32_t>(instruction.peer.value());
    meet(worker, instruction, true, sent);
  }

  void post_receive(std::size_t worker, const Instruction& instruction) {
    Tensor& received = tensors_.at(instruction.op);
    if (received.receiver != kNobody) {
      return report(ViolationKind::BadDataFlow, worker, "worker {} has posted its receive", received.receiver);
    }
    received.receiver = static_cast<std::int32_t>(worker);
    received.received_from = static_cast<std::int32_t>(instruction.peer.value());
    meet(worker, instruction, false, received);
  }

  void meet(std::size_t worker, const Instruction& instruction, bool is_send, Tensor& own) {
    const Issue issue = issue_of(worker, instruction.op, is_send);
    const auto peer = static_cast<std::uint32_t>(instruction.peer.index());
    const auto other = channels_.issue(issue, peer);
    if (!other) return;
    if (other->tensor == issue.tensor && other->is_send != is_send) {
      own.is_transferred = true;
      if (awaited_[other->worker] == issue.tensor) wake(other->worker);
      return;
    }
    channels_.break_channel(issue, peer);
    const Place place{other->worker, other->position};
    findings_.add(ViolationKind::Mismatch, {{worker, next_[worker]}, place}, [&] {
      return fmt::format("worker {}, instruction {} ({}): meets '{}' of worker {}", worker, next_[worker],
                         to_text(instruction), to_text(program_.workers[place.worker][place.position]), place.worker);
    });
  }

  /// The worker blocks until that tensor is transferred.
  bool await(std::size_t worker, const Op& op) {
    awaited_[worker] = issue_of(worker, op, false).tensor;
    return false;
  }

  bool wait_send(std::size_t worker, const Instruction& instruction) {
    Tensor& sent = tensors_.at(instruction.op);
    if (sent.made_on != static_cast<std::int32_t>(worker) || sent.sent_to != instruction.peer.value()) {
      bad(worker, "waits for a send that was not started here");
      return true;
    }
    if (sent.send_waited) bad(worker, "was waited for before");
    if (!sent.is_transferred) return await(worker, instruction.op);
    sent.send_waited = true;
    return true;
  }

  bool wait_receive(std::size_t worker, const Instruction& instruction) {
    Tensor& received = tensors_.at(instruction.op);
    if (received.receiver != static_cast<std::int32_t>(worker) || received.received_from != instruction.peer.value()) {
      bad(worker, "waits for a receive that was not posted here");
      return true;
    }
    if (received.receive_waited) bad(worker, "was waited for before");
    if (!received.is_transferred) return await(worker, instruction.op);
    received.receive_waited = true;
    return true;
  }

  void start_all_reduce(std::size_t worker, ParameterGroupId group) {
    trains_ = true;
    if (!collectives_.holds(worker, group)) return bad(worker, "the worker does not hold the stage");
    if (collectives_.has_started(worker, group)) return bad(worker, "has started before");
    if (collectives_.has_arrived(worker)) bad(worker, kAlreadySummed);
    if (!collectives_.start(worker, group)) return;
    for (const WorkerId member : collectives_.members(group)) wake(member.index());
  }

  bool wait_all_reduce(std::size_t worker, ParameterGroupId group) {
    if (!collectives_.holds(worker, group) || !collectives_.has_started(worker, group)) {
      bad(worker, "waits for an all-reduce that was not started here");
      return true;
    }
    if (collectives_.has_waited(worker, group)) bad(worker, "was waited for before");
    if (!collectives_.is_complete(group)) return false;
    if (collectives_.has_arrived(worker)) bad(worker, kAlreadySummed);
    collectives_.set_waited(worker, group);
    return true;
  }

  bool reduce_scalars(std::size_t worker, std::int64_t step) {
    if (collectives_.arrivals(worker) == 0 || scalars_at_[worker] != next_[worker]) {
      if (collectives_.has_arrived(worker)) {
        bad(worker, kAlreadySummed);
        return true;
      }
      const std::int64_t next = collectives_.arrivals(worker);
      if (step != next) report(ViolationKind::BadDataFlow, worker, "names step {}; the step to sum is {}", step, next);
      scalars_at_[worker] = next_[worker];
      collectives_.arrive(worker);
      for (std::size_t w = 0; w < next_.size() && collectives_.all_arrived(worker); ++w) wake(w);
    }
    return collectives_.all_arrived(worker);
  }

  void optimizer_step(std::size_t worker) {
    trains_ = true;
    if (!collectives_.has_arrived(worker)) bad(worker, "the norms have not been summed");
    if (num_steps_[worker]++ > 0) bad(worker, "the weights have been updated");
  }

  void update_weights(std::size_t worker, const Op& op) {
    trains_ = true;
    if (!is_placed(worker, op)) return;
    check_step(worker, op);
    if (op.weight_version != versions_.newest(op) + 1) {
      report(ViolationKind::UpdateOrder, worker, "the stage has had {} updates", versions_.newest(op));
    }
    if (versions_.gradients(op) == 0) bad(worker, "there are no gradients since the update before");
    versions_.update(op);
    const ParameterGroupId group = parameters_of(op.stage);
    if (!collectives_.has_started(worker, group)) return;
    if (collectives_.members(group).size() > 1) {
      bad(worker, "several workers sum the stage's gradients for one update of all");
    } else if (!collectives_.has_waited(worker, group)) {
      bad(worker, "the all-reduce of the stage was not waited for");
    } else {
      collectives_.restart(worker, group);
    }
  }

  void drop_weights(std::size_t worker, const Op& op) {
    if (!is_placed(worker, op)) return;
    check_version(worker, op);
    versions_.drop(op);
  }

  /// Reports what is missing from a program of which every worker has reached its end.
  void report_unfinished() {
    tensors_.report_unfinished(trains_, findings_);
    for (std::size_t w = 0; w < next_.size(); ++w) report_end(w);
    if (versions_.any_updates()) versions_.report_unfinished(findings_);
  }

  void report_end(std::size_t worker) {
    const auto missing = [&](auto message) { findings_.add(ViolationKind::BadDataFlow, {}, message); };
    if (!collectives_.has_arrived(worker)) {
      missing([&] { return fmt::format("worker {} never sums norms and losses", worker); });
    }
    if (trains_ && (num_steps_[worker] == 0) != versions_.any_updates()) {
      missing([&] {
        return fmt::format("worker {} {}", worker,
                           versions_.any_updates() ? "updates its weights twice" : "never updates its weights");
      });
    }
    if (!trains_ || versions_.any_updates()) return;
    for (const ParameterGroupId group : collectives_.unfinished(worker, summed_ == SummedStages::All)) {
      missing([&] {
        return fmt::format("worker {} does not start, or does not wait for, the all-reduce of stage {}", worker,
                           group.value());
      });
    }
  }

  static constexpr const char* kAlreadySummed = "the norms and losses have been summed";
  const Program& program_;
  SummedStages summed_;
  Findings findings_;
  Channels channels_;
  std::vector<std::size_t> next_;       // [worker]: instruction it stands at
  std::vector<std::size_t> ready_;      // workers to try again
  std::vector<bool> is_ready_;          // [worker]: is in ready_
  std::vector<std::uint32_t> awaited_;  // [worker]: the tensor whose transfer it last blocked for
  ProgramTensors tensors_;
  std::vector<std::size_t> scalars_at_;  // [worker]: where it sums norms and losses
  std::vector<std::size_t> num_steps_;   // [worker]: optimizer steps
  Collectives collectives_;
  HeldVersions versions_;
  bool trains_ = false;  // anything runs backward, or updates
};

}  // namespace

std::vector<Violation> check(const Program& program, ChannelDiscipline discipline, SummedStages summed) {
  Findings findings;
  check_placement(program.placement, program.stages, program.micro_batches, program.workers.size(), findings);
  if (program.steps < 1 || program.micro_batches % program.steps != 0) {
    findings.add(ViolationKind::OutOfRange, {}, [&] {
      return fmt::format("{} micro-batches do not form {} steps", program.micro_batches, program.steps);
    });
  }
  if (!findings.empty()) return findings.take();
  return ProgramRun(program, discipline, summed).run();
}

}  // namespace chimera
