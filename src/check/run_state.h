#pragma once
// check() (check_program.h) executes a program without tensors, to find its errors. These classes are the state of this
// execution: ProgramTensors has the results of ops and the workers that have them, Channels the messages between
// workers, LiveVersions the versions of weights, and OffloadedActivations the activations in host memory.
// check_program.cc calls them for each instruction that it executes, and decides from their answers what is a
// violation. collectives.h has the state of all-reduces. All classes require ids in range.
// A micro-batch may run in slices: parts of its tokens, each with ops of its own.

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// A send or a receive that a worker has issued (started).
struct StartedTransfer {
  std::uint32_t tensor = 0;    // ProgramTensors::number()
  std::uint32_t worker = 0;    // Worker that issued it
  std::uint32_t position = 0;  // Position of its instruction in the worker's list
  bool is_send = false;
};

/// The message queues between workers. As in NCCL, messages are matched by order: a send or receive of one end of a
/// queue is matched with the oldest unmatched one of the other end. With ChannelDiscipline::PerDirection, a pair of
/// workers has a queue per direction, otherwise one queue for both.
class Channels {
 public:
  explicit Channels(ChannelDiscipline discipline) : discipline_(discipline) {}

  /// Issues a send to `peer` or a receive from it. Returns the send or receive of `peer` that it is matched with, which
  /// may be of another tensor. If `peer` has none yet, keeps `transfer` in the queue, and returns nothing.
  std::optional<StartedTransfer> start(const StartedTransfer& transfer, std::uint32_t peer) {
    Queue& queue = queue_of(transfer, peer);
    if (queue.is_broken) return std::nullopt;
    if (queue.waiting.empty() || queue.waiting.front().worker == transfer.worker) {
      queue.waiting.push_back(transfer);
      return std::nullopt;
    }
    const StartedTransfer first = queue.waiting.front();
    queue.waiting.pop_front();
    return first;
  }

  /// Stops matching in the queue of `transfer`. Called after a mismatch of tensors, which would make all later messages
  /// of the queue mismatch too.
  void break_channel(const StartedTransfer& transfer, std::uint32_t peer) { queue_of(transfer, peer).is_broken = true; }

 private:
  struct Queue {
    std::deque<StartedTransfer> waiting;  // Unmatched, all issued by the same worker
    bool is_broken = false;
  };

  Queue& queue_of(const StartedTransfer& transfer, std::uint32_t peer) {
    auto [from, to] = transfer.is_send ? std::pair(transfer.worker, peer) : std::pair(peer, transfer.worker);
    if (discipline_ == ChannelDiscipline::SerialPair && from > to) std::swap(from, to);
    return queues_[std::uint64_t{from} << 32U | to];
  }

  std::unordered_map<std::uint64_t, Queue> queues_;  // By sender and receiver or, if serial, by both workers
  ChannelDiscipline discipline_;
};

/// The versions of weights that each copy of a stage keeps, and the number of its gradients since the last update. A
/// copy is a stage of one replica of the model. An asynchronous schedule updates weights while older versions are still
/// in use; in other schedules, all ops use version 0. Each function reads the copy (stage and replica) and the weight
/// version from `op`.
class LiveVersions {
 public:
  explicit LiveVersions(const Program& program)
      : stages_(static_cast<std::size_t>(program.stages)), copies_(program.placement.num_replicas() * stages_) {}

  /// Returns whether the copy keeps the version.
  [[nodiscard]] bool holds(const Op& op) const {
    return std::ranges::count(copies_[index(op)].held, op.weight_version) > 0;
  }
  /// Returns the newest version of the copy, which is the number of its updates.
  [[nodiscard]] std::int32_t newest(const Op& op) const { return copies_[index(op)].newest; }
  /// Returns how many weight gradients the copy has accumulated since its last update.
  [[nodiscard]] std::int32_t gradients(const Op& op) const { return copies_[index(op)].gradients; }

  void add_gradient(const Op& op) { ++copies_[index(op)].gradients; }
  /// Removes the version; the copy keeps it no longer (DropWeights).
  void drop(const Op& op) {
    std::erase(copies_[index(op)].held, op.weight_version);
    any_updates_ = true;
  }
  /// Adds the next version, and keeps the older ones.
  void update(const Op& op) {
    Copy& copy = copies_[index(op)];
    copy.held.push_back(++copy.newest);
    copy.gradients = 0;
    any_updates_ = true;
  }
  /// Called at the end of the program. Adds violations for gradients that no update used, and for copies whose newest
  /// weight version was dropped: the next step starts with it.
  void report_unfinished(Findings& findings) const {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const Copy& copy = copies_[i];
      if (copy.gradients > 0)
        findings.add_text(ViolationKind::BadDataFlow, "{} gradients of stage {} of replica {} enter no update",
                          copy.gradients, i % stages_, i / stages_);
      if (std::ranges::count(copy.held, copy.newest) == 0)
        findings.add_text(ViolationKind::MissingVersion, "the newest weights of stage {} of replica {} are dropped",
                          i % stages_, i / stages_);
    }
  }
  /// Returns whether the program has updated any copy, or dropped a version of any.
  [[nodiscard]] bool any_updates() const { return any_updates_; }

 private:
  struct Copy {
    std::int32_t newest = 0;
    std::int32_t gradients = 0;  // Since the last update
    std::vector<std::int32_t> held = {0};
  };

  [[nodiscard]] std::size_t index(const Op& op) const { return op.replica.index() * stages_ + op.stage.index(); }

  std::size_t stages_;
  std::vector<Copy> copies_;  // [replica][stage]
  bool any_updates_ = false;
};

/// No worker
inline constexpr std::int32_t kNoWorker = -1;

/// The send or the receive of a tensor.
struct TransferEnd {
  std::int32_t worker = kNoWorker;  // Worker that started it
  std::int32_t peer = kNoWorker;    // Worker that it names
  bool is_awaited = false;          // Whether its wait has returned
};

/// The result of an op, such as activations, and where it is. It is sent at most once. Instructions of the sender and
/// of the receiver set separate fields, so that the check finds a missing instruction of either.
struct Tensor {
  std::int32_t made_on = kNoWorker;  // Worker that ran the op
  TransferEnd send;
  TransferEnd receive;
  bool is_transferred = false;  // Whether the send and the receive were matched
  /// Returns whether the worker may use the tensor.
  [[nodiscard]] bool is_on(std::int32_t worker) const {
    return made_on == worker || (receive.is_awaited && receive.worker == worker);
  }
};

/// The tensors of a program. Each is found by the op that makes it, whatever its replica, because each micro-batch
/// belongs to one replica.
class ProgramTensors {
 public:
  explicit ProgramTensors(const Program& program)
      : stages_(program.stages), micro_batches_(program.micro_batches), slices_(program.slices) {}

  Tensor& at(const Op& op) {
    auto& table = tables_[static_cast<std::size_t>(op.kind)];
    if (table.empty()) table.resize(static_cast<std::size_t>(stages_ * micro_batches_ * slices_));
    return table[slot(op.stage.value(), op.micro_batch.value(), op.slice)];
  }
  /// Returns whether the worker has the result of the op of this kind for one slice of a micro-batch at `stage`.
  [[nodiscard]] bool is_on(std::size_t worker, OpKind kind, std::int64_t stage, MicroBatchId micro_batch,
                           std::int64_t slice) const {
    const auto& table = tables_[static_cast<std::size_t>(kind)];
    return !table.empty() && table[slot(stage, micro_batch.value(), slice)].is_on(static_cast<std::int32_t>(worker));
  }
  /// Returns a number for the op's result, unique within the program.
  [[nodiscard]] std::uint32_t number(const Op& op) const {
    const std::int64_t of_a_kind = stages_ * micro_batches_ * slices_;
    return static_cast<std::uint32_t>(static_cast<std::size_t>(static_cast<std::int64_t>(op.kind) * of_a_kind) +
                                      slot(op.stage.value(), op.micro_batch.value(), op.slice));
  }
  /// Called at the end of the program. Adds violations for missing ops, incomplete backwards, and transfers without a
  /// wait. `trains`: whether the program must have backwards; otherwise it must have forwards only.
  void report_unfinished(bool trains, Findings& findings) const {
    // The slot behind the last stage is the number of slots.
    for (std::size_t i = 0; i < slot(stages_, 0, 0); ++i) report_missing(i, trains, findings);
    for (const auto& table : tables_)
      for (std::size_t i = 0; i < table.size(); ++i) report_transfer(table[i], i, findings);
  }

 private:
  [[nodiscard]] std::size_t slot(std::int64_t stage, std::int64_t micro_batch, std::int64_t slice) const {
    return static_cast<std::size_t>((stage * micro_batches_ + micro_batch) * slices_ + slice);
  }
  /// Returns, for example, `micro-batch 5 at stage 2`, or `micro-batch 5.3 at stage 2` for slice 3 of several.
  [[nodiscard]] std::string describe(std::size_t slot) const {
    const auto at = static_cast<std::int64_t>(slot);
    const std::int64_t row = at / slices_;
    return fmt::format("micro-batch {}{} at stage {}", row % micro_batches_,
                       slices_ > 1 ? fmt::format(".{}", at % slices_) : "", row / micro_batches_);
  }

  // Forward alone (validation), or forward with one complete backward (training); anything else is reported once for
  // each slice of a micro-batch.
  void report_missing(std::size_t slot, bool trains, Findings& findings) const {
    const auto has_run = [&](OpKind kind) {
      const auto& table = tables_[static_cast<std::size_t>(kind)];
      return !table.empty() && table[slot].made_on != kNoWorker;
    };
    const bool whole = has_run(OpKind::Backward);
    const bool input = has_run(OpKind::BackwardInput);
    const bool weight = has_run(OpKind::BackwardWeight);
    const bool backward = whole ? !input && !weight : input && weight;
    // Half of a split backward is no backward, but it is an error in validation, too.
    if (has_run(OpKind::Forward) && backward == trains && (backward || !(whole || input || weight))) return;
    findings.add(ViolationKind::MissingOp, {}, [&] {
      return fmt::format("{}: the program runs{}{}{}{}, not F{}", describe(slot), has_run(OpKind::Forward) ? " F" : "",
                         whole ? " B" : "", input ? " I" : "", weight ? " W" : "",
                         trains ? " and B (or F, I and W)" : " alone");
    });
  }

  void report_transfer(const Tensor& tensor, std::size_t slot, Findings& findings) const {
    for (const auto& [end, what] : {std::pair{tensor.send, "send"}, std::pair{tensor.receive, "receive"}}) {
      if (end.worker == kNoWorker || end.is_awaited) continue;
      findings.add(ViolationKind::BadDataFlow, {}, [&, worker = end.worker, kind = what] {
        return fmt::format("worker {} never waits for the {} of a tensor of {}", worker, kind, describe(slot));
      });
    }
  }

  std::int64_t stages_;
  std::int64_t micro_batches_;
  std::int64_t slices_;
  std::array<std::vector<Tensor>, kOpKinds> tables_;  // [kind][slot()]; empty if the kind is unused
};

/// Activations that workers have moved to host memory (offloaded) until the backward. For each stage that some Offload
/// instruction names, the class also counts the micro-batches whose activations are in device memory.
class OffloadedActivations {
 public:
  explicit OffloadedActivations(const Program& program)
      : stages_(program.workers.size()),
        on_device_(program.workers.size(), 0),
        most_(program.most_on_device > 0 ? program.most_on_device : std::numeric_limits<std::int64_t>::max()) {
    for (std::size_t w = 0; w < stages_.size(); ++w) {
      for (const Instruction& instruction : program.workers[w])
        if (instruction.kind == InstructionKind::Offload) stages_[w].insert(instruction.op.stage);
    }
  }

  /// Returns whether the activations of the op's stage, micro-batch and slice are in host memory.
  [[nodiscard]] bool in_host(const Op& op) const { return in_host_.contains(key(op)); }
  /// Moves the activations from the device to host memory.
  void offload(std::size_t worker, const Op& op) {
    in_host_.emplace(key(op), worker);
    --on_device_[worker];
  }
  /// Moves the activations back to the device.
  void load(std::size_t worker, const Op& op) {
    in_host_.erase(key(op));
    ++on_device_[worker];
  }
  /// Runs an op: a forward adds activations to the device, and a backward or input gradient removes them.
  void compute(std::size_t worker, const Op& op) {
    if (!stages_[worker].contains(op.stage)) return;
    on_device_[worker] += op.kind == OpKind::Forward;
    on_device_[worker] -= gives_input_gradient(op.kind);
  }
  /// Returns whether the worker has activations of more micro-batches on its device than program.most_on_device.
  [[nodiscard]] bool exceeds_limit(std::size_t worker) const { return on_device_[worker] > most_; }
  /// Called at the end of the program. Adds violations for activations that are still in host memory.
  void report_unfinished(Findings& findings) const {
    for (const auto& [tensor, worker] : in_host_)
      findings.add_text(ViolationKind::BadDataFlow, "worker {} never loads activations that it has offloaded", worker);
  }

 private:
  using Key = std::tuple<StageId, MicroBatchId, std::int16_t>;
  static Key key(const Op& op) { return {op.stage, op.micro_batch, op.slice}; }

  std::vector<std::set<StageId>> stages_;  // [worker]: offloaded stages
  std::vector<std::int64_t> on_device_;    // [worker]: micro-batches of these stages, counted once per stage and slice
  std::int64_t most_;
  std::map<Key, std::size_t> in_host_;  // The worker that offloaded the activations
};

}  // namespace chimera
