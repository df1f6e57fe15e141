#include "check/check_program.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check/check_schedule.h"
#include "check/collectives.h"
#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

struct Issue {
  std::uint32_t tensor = 0;
  std::uint32_t worker = 0;
  std::uint32_t position = 0;
  bool is_send = false;
};

/// The queues between workers: an issue matches the oldest unmatched issue of the queue's other end.
class Channels {
 public:
  Channels(std::size_t workers, ChannelDiscipline discipline) : of_worker_(workers), discipline_(discipline) {}

  /// Returns the matching issue, if there is one; otherwise keeps this issue. After break_channel() nothing matches.
  std::optional<Issue> issue(const Issue& issue, std::uint32_t peer) {
    Queue& queue = queues_[queue_of(issue, peer)];
    if (queue.is_broken) return std::nullopt;
    if (queue.is_empty() || queue.front().worker == issue.worker) {
      queue.waiting.push_back(issue);
      return std::nullopt;
    }
    return queue.pop();
  }

  void break_channel(const Issue& issue, std::uint32_t peer) { queues_[queue_of(issue, peer)].is_broken = true; }

 private:
  struct Queue {
    std::vector<Issue> waiting;  // from `head` on, of the same end
    std::size_t head = 0;
    bool is_broken = false;
    [[nodiscard]] bool is_empty() const { return head == waiting.size(); }
    [[nodiscard]] const Issue& front() const { return waiting[head]; }
    Issue pop() {
      const Issue first = waiting[head++];
      if (is_empty()) {
        waiting.clear();
        head = 0;
      }
      return first;
    }
  };

  struct Named {
    std::uint64_t name;  // peer and, with queues per direction, the direction
    std::uint32_t queue;
  };

  std::uint64_t name(std::uint32_t peer, bool is_send) const {
    return 2 * std::uint64_t{peer} + (discipline_ == ChannelDiscipline::PerDirection && is_send ? 1 : 0);
  }

  std::uint32_t queue_of(const Issue& issue, std::uint32_t peer) {
    const std::uint64_t named = name(peer, issue.is_send);
    const auto found = place_of(issue.worker, named);
    if (found != of_worker_[issue.worker].end() && found->name == named) return found->queue;
    const auto queue = static_cast<std::uint32_t>(queues_.size());
    queues_.emplace_back();
    of_worker_[issue.worker].insert(found, {named, queue});
    const std::uint64_t other = name(issue.worker, !issue.is_send);
    of_worker_[peer].insert(place_of(peer, other), {other, queue});
    return queue;
  }

  std::vector<Named>::iterator place_of(std::uint32_t worker, std::uint64_t named) {
    auto& known = of_worker_[worker];
    return std::lower_bound(known.begin(), known.end(), named,
                            [](const Named& a, std::uint64_t b) { return a.name < b; });
  }

  std::vector<std::vector<Named>> of_worker_;  // [worker], ascending by name
  std::vector<Queue> queues_;
  ChannelDiscipline discipline_;
};

/// Weight versions held during the run, and gradients since the last update. Requires ops in range.
class HeldVersions {
 public:
  explicit HeldVersions(const Program& program)
      : stages_(static_cast<std::size_t>(program.stages)), gradients_(program.placement.num_replicas() * stages_, 0) {}

  [[nodiscard]] bool holds(const Op& op) const {
    const auto copy = copies_.find(index(op));
    return copy == copies_.end() ? op.weight_version == 0 : copy->second.held.contains(op.weight_version);
  }
  [[nodiscard]] std::int32_t newest(const Op& op) const {
    const auto copy = copies_.find(index(op));
    return copy == copies_.end() ? 0 : copy->second.newest;
  }
  [[nodiscard]] std::int32_t gradients(const Op& op) const { return gradients_[index(op)]; }

  void add_gradient(const Op& op) { ++gradients_[index(op)]; }
  void drop(const Op& op) { copies_[index(op)].held.erase(op.weight_version); }
  void update(const Op& op) {
    Copy& copy = copies_[index(op)];
    copy.held.insert(++copy.newest);
    gradients_[index(op)] = 0;
  }
  /// Adds gradients without an update, and dropped newest versions.
  void report_unfinished(Findings& findings) const;
  [[nodiscard]] bool any_updates() const { return !copies_.empty(); }

 private:
  struct Copy {
    std::int32_t newest = 0;
    std::set<std::int32_t> held = {0};
  };

  [[nodiscard]] std::size_t index(const Op& op) const { return op.replica.index() * stages_ + op.stage.index(); }

  std::size_t stages_;
  std::vector<std::int32_t> gradients_;           // [replica][stage]
  std::unordered_map<std::size_t, Copy> copies_;  // by the same index; a missing entry has version 0 only
};

inline constexpr std::int32_t kNobody = -1;

struct Tensor {
  std::int32_t made_on = kNobody;
  std::int32_t sent_to = kNobody;
  std::int32_t receiver = kNobody;
  std::int32_t received_from = kNobody;
  bool is_transferred = false;
  bool send_waited = false;
  bool receive_waited = false;
  [[nodiscard]] bool is_on(std::int32_t worker) const {
    return made_on == worker || (receive_waited && receiver == worker);
  }
};

class ProgramTensors {
 public:
  explicit ProgramTensors(const Program& program)
      : stages_(program.stages), micro_batches_(program.micro_batches), slices_(program.slices) {}

  Tensor& at(const Op& op) {
    auto& table = tables_[static_cast<std::size_t>(op.kind)];
    if (table.empty()) table.resize(static_cast<std::size_t>(stages_ * micro_batches_ * slices_));
    return table[slot(op.stage.value(), op.micro_batch.value(), op.slice)];
  }
  /// Returns whether the result of the slice's op of this kind at `stage` is on the worker.
  [[nodiscard]] bool is_on(std::size_t worker, OpKind kind, std::int64_t stage, MicroBatchId micro_batch,
                           std::int64_t slice) const {
    const auto& table = tables_[static_cast<std::size_t>(kind)];
    return !table.empty() && table[slot(stage, micro_batch.value(), slice)].is_on(static_cast<std::int32_t>(worker));
  }
  [[nodiscard]] std::uint32_t number(const Op& op) const {
    const std::int64_t of_a_kind = stages_ * micro_batches_ * slices_;
    return static_cast<std::uint32_t>(static_cast<std::size_t>(static_cast<std::int64_t>(op.kind) * of_a_kind) +
                                      slot(op.stage.value(), op.micro_batch.value(), op.slice));
  }
  /// Adds violations for missing ops, incomplete backwards, and transfers without a wait.
  void report_unfinished(bool trains, Findings& findings) const;

 private:
  [[nodiscard]] std::size_t slot(std::int64_t stage, std::int64_t micro_batch, std::int64_t slice) const {
    return static_cast<std::size_t>((stage * micro_batches_ + micro_batch) * slices_ + slice);
  }
  /// Returns `5`, or `5.3` for slice 3 of several.
  [[nodiscard]] std::string name_of(std::int64_t micro_batch, std::int64_t slice) const {
    return fmt::to_string(micro_batch) + (slices_ > 1 ? fmt::format(".{}", slice) : "");
  }
  void report_missing(std::size_t slot, bool trains, Findings& findings) const;
  void report_transfer(const Tensor& tensor, std::size_t slot, Findings& findings) const;

  std::int64_t stages_;
  std::int64_t micro_batches_;
  std::int64_t slices_;
  std::array<std::vector<Tensor>, kOpKinds> tables_;  // [kind][slot()]; empty if the kind is unused
};

void HeldVersions::report_unfinished(Findings& findings) const {
  for (std::size_t copy = 0; copy < gradients_.size(); ++copy) {
    Op newest{OpKind::Backward,
              ReplicaId(static_cast<std::int64_t>(copy / stages_)),
              StageId(static_cast<std::int64_t>(copy % stages_)),
              {}};
    newest.weight_version = this->newest(newest);
    if (gradients(newest) > 0) {
      findings.add(ViolationKind::BadDataFlow, {}, [&] {
        return fmt::format("{} gradients of stage {} of replica {} enter no update", gradients(newest),
                           newest.stage.value(), newest.replica.value());
      });
    }
    if (!holds(newest)) {
      findings.add(ViolationKind::MissingVersion, {}, [&] {
        return fmt::format("the newest weights of stage {} of replica {} are dropped", newest.stage.value(),
                           newest.replica.value());
      });
    }
  }
}

void ProgramTensors::report_unfinished(bool trains, Findings& findings) const {
  for (std::size_t i = 0; i < slot(stages_, 0, 0); ++i) report_missing(i, trains, findings);
  for (const auto& table : tables_) {
    for (std::size_t i = 0; i < table.size(); ++i) report_transfer(table[i], i, findings);
  }
}

void ProgramTensors::report_missing(std::size_t slot, bool trains, Findings& findings) const {
  const auto has_run = [&](OpKind kind) {
    const auto& table = tables_[static_cast<std::size_t>(kind)];
    return !table.empty() && table[slot].made_on != kNobody;
  };
  const bool whole = has_run(OpKind::Backward);
  const bool input = has_run(OpKind::BackwardInput);
  const bool weight = has_run(OpKind::BackwardWeight);
  const bool backward = whole ? !input && !weight : input && weight;
  if (has_run(OpKind::Forward) && backward == trains && (backward || !(whole || input || weight))) return;
  findings.add(ViolationKind::MissingOp, {}, [&] {
    const auto at = static_cast<std::int64_t>(slot);
    const std::int64_t row = at / slices_;
    return fmt::format("micro-batch {} at stage {}: the program runs{}{}{}{}, not F{}",
                       name_of(row % micro_batches_, at % slices_), row / micro_batches_,
                       has_run(OpKind::Forward) ? " F" : "", whole ? " B" : "", input ? " I" : "", weight ? " W" : "",
                       trains ? " and B (or F, I and W)" : " alone");
  });
}

void ProgramTensors::report_transfer(const Tensor& tensor, std::size_t slot, Findings& findings) const {
  const auto report_wait = [&](const char* what, std::int32_t worker) {
    findings.add(ViolationKind::BadDataFlow, {}, [&] {
      const auto at = static_cast<std::int64_t>(slot);
      const std::int64_t row = at / slices_;
      return fmt::format("worker {} never waits for the {} of a tensor of micro-batch {} at stage {}", worker, what,
                         name_of(row % micro_batches_, at % slices_), row / micro_batches_);
    });
  };
  if (tensor.sent_to != kNobody && !tensor.send_waited) report_wait("send", tensor.made_on);
  if (tensor.receiver != kNobody && !tensor.receive_waited) report_wait("receive", tensor.receiver);
}

class OffloadedActivations {
 public:
  explicit OffloadedActivations(const Program& program)
      : stages_(program.workers.size()),
        on_device_(program.workers.size(), 0),
        most_(program.most_on_device > 0 ? program.most_on_device : std::numeric_limits<std::int64_t>::max()) {
    for (std::size_t w = 0; w < stages_.size(); ++w) {
      for (const Instruction& instruction : program.workers[w]) {
        if (instruction.kind == InstructionKind::Offload) stages_[w].insert(instruction.op.stage);
      }
    }
  }

  [[nodiscard]] bool in_host(const Op& op) const { return in_host_.contains(key(op)); }
  void offload(std::size_t worker, const Op& op) {
    in_host_.emplace(key(op), worker);
    --on_device_[worker];
  }
  void load(std::size_t worker, const Op& op) {
    in_host_.erase(key(op));
    ++on_device_[worker];
  }
  void compute(std::size_t worker, const Op& op) {
    if (!stages_[worker].contains(op.stage)) return;
    on_device_[worker] += op.kind == OpKind::Forward;
    on_device_[worker] -= gives_input_gradient(op.kind);
  }
  [[nodiscard]] bool too_many(std::size_t worker) const { return on_device_[worker] > most_; }
  void report_unfinished(Findings& findings) const {
    for (const auto& [tensor, worker] : in_host_) {
      findings.add(ViolationKind::BadDataFlow, {}, [&, holder = worker] {
        return fmt::format("worker {} never loads activations that it has offloaded", holder);
      });
    }
  }

 private:
  using Key = std::tuple<StageId, MicroBatchId, std::int16_t>;
  static Key key(const Op& op) { return {op.stage, op.micro_batch, op.slice}; }

  std::vector<std::set<StageId>> stages_;  // [worker]
  std::vector<std::int64_t> on_device_;    // [worker]: micro-batches of these stages
  std::int64_t most_;
  std::map<Key, std::size_t> in_host_;  // worker
};

namespace {

constexpr std::uint32_t kNoTensor = std::numeric_limits<std::uint32_t>::max();

class ProgramRun {
 public:
  ProgramRun(const Program& program, ChannelDiscipline discipline, SummedStages summed, FirstUse first_use)
      : program_(program),
        summed_(summed),
        first_use_(first_use),
        awaited_peers_(program.workers.size()),
        channels_(program.workers.size(), discipline),
        next_(program.workers.size(), 0),
        is_ready_(program.workers.size(), true),
        awaited_(program.workers.size(), kNoTensor),
        tensors_(program),
        scalars_at_(program.workers.size(), 0),
        num_steps_(program.workers.size(), 0),
        collectives_(program),
        versions_(program),
        offloaded_(program) {}

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
    if (!report_deadlock(program_, next_, awaited_peers_, collectives_, findings_)) report_unfinished();
    return findings_.take();
  }

 private:
  template <class... Parts>
  void report(ViolationKind kind, std::size_t worker, fmt::format_string<Parts...> format, Parts... parts) {
    const Place place{worker, next_[worker]};
    findings_.add(kind, {place}, [&] {
      return fmt::format("worker {}, instruction {} ({}): {}", worker, place.position,
                         to_text(program_.workers[worker][place.position], program_.slices),
                         fmt::vformat(format, fmt::make_format_args(parts...)));
    });
  }

  void bad(std::size_t worker, const char* what) { report(ViolationKind::BadDataFlow, worker, "{}", what); }

  void wake(std::size_t worker) {
    if (is_ready_[worker]) return;
    is_ready_[worker] = true;
    ready_.push_back(worker);
  }

  /// Returns false if the instruction blocks.
  bool step(std::size_t worker, const Instruction& instruction) {
    if (!in_range(worker, instruction)) return true;
    if (waits_for_device(worker, instruction)) return false;
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
      case InstructionKind::Offload: offload(worker, instruction.op); return true;
      case InstructionKind::Load: load(worker, instruction.op); return true;
    }
    return true;
  }

  /// Returns whether this is a first use that waits for the worker's transfers or all-reduces.
  bool waits_for_device(std::size_t worker, const Instruction& instruction) {
    if (first_use_ == FirstUse::Nothing || !can_wait_for_device(instruction.kind)) return false;
    if (used_.contains({worker, instruction.kind, instruction.op.kind, instruction.op.stage})) return false;
    if (!awaited_peers_[worker].empty() || collectives_.has_incomplete(worker)) return true;
    used_.emplace(worker, instruction.kind, instruction.op.kind, instruction.op.stage);
    return false;
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
    if (!require("slice", op.slice, program_.slices)) return false;
    if (is_transfer(instruction.kind)) {
      const auto workers = static_cast<std::int64_t>(next_.size());
      if (!require("worker", instruction.peer.value(), workers)) return false;
      if (instruction.peer.index() != worker) return true;
      bad(worker, "a worker sends itself no messages");
      return false;
    }
    return require("replica", op.replica.value(), static_cast<std::int64_t>(program_.placement.num_replicas()));
  }

  void compute(std::size_t worker, const Op& op) {
    Tensor& result = tensors_.at(op);
    if (result.made_on != kNobody) report(ViolationKind::DoubledOp, worker, "has run on worker {}", result.made_on);
    result.made_on = static_cast<std::int32_t>(worker);
    if (!is_placed(worker, op)) return;
    check_inputs(worker, op);
    check_version(worker, op);
    check_step(worker, op);
    hold(worker, op);
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

  void check_pair(std::size_t worker) {
    const auto& instructions = program_.workers[worker];
    const std::size_t next = next_[worker] + 1;
    const bool is_op = next < instructions.size() && instructions[next].kind == InstructionKind::Compute;
    if (!is_op || instructions[next].op.paired) return bad(worker, "the first of a pair without a second one");
    const Op& second = instructions[next].op;
    if (program_.slices > 1) return bad(worker, "paired; a program with slices has no pairs");
    if (second.micro_batch == instructions[next - 1].op.micro_batch) {
      bad(worker, "a pair of one micro-batch");
    } else if (in_range(worker, instructions[next])) {
      check_inputs(worker, second);
    }
  }

  void check_version(std::size_t worker, const Op& op) {
    if (versions_.holds(op)) return;
    report(ViolationKind::MissingVersion, worker, "weight version {} of its stage is not stored; the newest is {}",
           op.weight_version, versions_.newest(op));
  }

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
    require_on_device(worker, op);
    const std::int64_t stage = op.stage.value();
    const auto is_on = [&](OpKind kind) { return tensors_.is_on(worker, kind, stage, op.micro_batch, op.slice); };
    if (!is_on(OpKind::Forward)) bad(worker, "its forward has not run on this worker");
    if (is_on(op.kind)) bad(worker, "its backward has run before");
  }

  void hold(std::size_t worker, const Op& op) {
    require_on_device(worker, op);
    offloaded_.compute(worker, op);
    check_device(worker);
  }

  void require_on_device(std::size_t worker, const Op& op) {
    if (gives_input_gradient(op.kind) && offloaded_.in_host(op)) bad(worker, "its activations are in host memory");
  }

  void check_device(std::size_t worker) {
    if (!offloaded_.too_many(worker)) return;
    report(ViolationKind::BadDataFlow, worker, "more than {} micro-batches of offloaded stages are on the device",
           program_.most_on_device);
  }

  void offload(std::size_t worker, const Op& op) {
    if (op.kind != OpKind::Forward) return bad(worker, "only an F makes activations");
    if (!is_placed(worker, op)) return;
    const auto is_on = [&](OpKind kind) {
      return tensors_.is_on(worker, kind, op.stage.value(), op.micro_batch, op.slice);
    };
    if (!is_on(OpKind::Forward)) return bad(worker, "the forward has not run on this worker");
    if (is_on(OpKind::Backward) || is_on(OpKind::BackwardInput)) return bad(worker, "its backward has run before");
    if (offloaded_.in_host(op)) return bad(worker, "its activations are in host memory");
    offloaded_.offload(worker, op);
  }

  void load(std::size_t worker, const Op& op) {
    if (!gives_input_gradient(op.kind)) return bad(worker, "only B and I need activations");
    if (!is_placed(worker, op)) return;
    if (!offloaded_.in_host(op)) return bad(worker, "its activations are not in host memory");
    offloaded_.load(worker, op);
    check_device(worker);
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
      if (stage > 0 && !is_on(OpKind::Forward, stage - 1, op.slice)) bad(worker, "its input is not on this worker");
      if (op.slice > 0 && !is_on(OpKind::Forward, stage, op.slice - 1)) {
        bad(worker, "the forward of the slice before has not run on this worker");
      }
    } else if (op.kind == OpKind::BackwardWeight) {
      if (!is_on(OpKind::BackwardInput, stage, op.slice)) bad(worker, "its input gradient has not run on this worker");
    } else {
      if (!is_on(OpKind::Forward, stage, op.slice)) bad(worker, "its forward has not run on this worker");
      if (stage + 1 < program_.stages && !has_gradient(stage + 1, op.slice)) {
        bad(worker, "the gradient of its output is not on this worker");
      }
      if (op.slice + 1 < program_.slices && !has_gradient(stage, op.slice + 1)) {
        bad(worker, "the backward of the next slice has not run on this worker");
      }
    }
  }

  Issue issue_of(std::size_t worker, const Op& op, bool is_send) const {
    return {tensors_.number(op), static_cast<std::uint32_t>(worker), static_cast<std::uint32_t>(next_[worker]),
            is_send};
  }

  void start_send(std::size_t worker, const Instruction& instruction) {
    Tensor& sent = tensors_.at(instruction.op);
    if (sent.made_on != static_cast<std::int32_t>(worker)) return bad(worker, "the tensor is not made on this worker");
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

  void note_peers(std::size_t worker, std::uint32_t peer, const std::optional<Issue>& match) {
    if (first_use_ == FirstUse::Nothing) return;
    if (!match) return awaited_peers_[worker].push_back(peer);
    auto& awaited = awaited_peers_[match->worker];
    awaited.erase(std::ranges::find(awaited, static_cast<std::uint32_t>(worker)));
    wake(match->worker);
  }

  void meet(std::size_t worker, const Instruction& instruction, bool is_send, Tensor& own) {
    const Issue issue = issue_of(worker, instruction.op, is_send);
    const auto peer = static_cast<std::uint32_t>(instruction.peer.index());
    const auto other = channels_.issue(issue, peer);
    note_peers(worker, peer, other);
    if (!other) return;
    if (other->tensor == issue.tensor && other->is_send != is_send) {
      own.is_transferred = true;
      if (awaited_[other->worker] == issue.tensor) wake(other->worker);
      return;
    }
    channels_.break_channel(issue, peer);
    const Place place{other->worker, other->position};
    findings_.add(ViolationKind::Mismatch, {{worker, next_[worker]}, place}, [&] {
      return fmt::format("worker {}, instruction {} ({}): does not match '{}' of worker {}", worker, next_[worker],
                         to_text(instruction, program_.slices),
                         to_text(program_.workers[place.worker][place.position], program_.slices), place.worker);
    });
  }

  bool await(std::size_t worker, const Op& op) {
    awaited_[worker] = issue_of(worker, op, false).tensor;
    return false;
  }

  bool wait_send(std::size_t worker, const Instruction& instruction) {
    Tensor& sent = tensors_.at(instruction.op);
    if (sent.made_on != static_cast<std::int32_t>(worker) || sent.sent_to != instruction.peer.value()) {
      bad(worker, "waits for a send that was not started on this worker");
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
      bad(worker, "waits for a receive that was not posted on this worker");
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
      bad(worker, "waits for an all-reduce that was not started on this worker");
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
    if (versions_.gradients(op) == 0) bad(worker, "the stage has no new gradients since its last update");
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

  void report_unfinished() {
    tensors_.report_unfinished(trains_, findings_);
    offloaded_.report_unfinished(findings_);
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
  FirstUse first_use_;
  std::vector<std::vector<std::uint32_t>> awaited_peers_;  // [worker]: peers of its unfinished transfers
  std::set<std::tuple<std::size_t, InstructionKind, OpKind, StageId>> used_;  // by worker
  Findings findings_;
  Channels channels_;
  std::vector<std::size_t> next_;   // [worker]: current instruction
  std::vector<std::size_t> ready_;  // workers to retry
  std::vector<bool> is_ready_;
  std::vector<std::uint32_t> awaited_;  // [worker]: tensor of its last blocking wait
  ProgramTensors tensors_;
  std::vector<std::size_t> scalars_at_;  // [worker]: position of its current ReduceScalars
  std::vector<std::size_t> num_steps_;
  Collectives collectives_;
  HeldVersions versions_;
  OffloadedActivations offloaded_;
  bool trains_ = false;  // there is a backward, an all-reduce or an update
};

}  // namespace

std::vector<Violation> check(const Program& program, ChannelDiscipline discipline, SummedStages summed,
                             FirstUse first_use) {
  Findings findings;
  check_placement(program.placement, program.stages, program.micro_batches, program.slices, program.workers.size(),
                  findings);
  if (program.steps < 1 || program.micro_batches % program.steps != 0) {
    findings.add(ViolationKind::OutOfRange, {}, [&] {
      return fmt::format("{} micro-batches do not form {} steps", program.micro_batches, program.steps);
    });
  }
  if (!findings.empty()) return findings.take();
  return ProgramRun(program, discipline, summed, first_use).run();
}

}  // namespace chimera
