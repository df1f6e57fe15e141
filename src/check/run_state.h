#pragma once
// The state of a run that check_program.h checks: tensors and where they are, the queues between workers, weight
// versions, and offloaded activations. Each part records what the instructions do and answers questions about it; the
// run decides what is a violation. collectives.h has the state of all-reduces. All parts require ids in range.

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// A send or a receive that a worker has started.
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
    std::vector<Issue> waiting;  // From `head` on, of the same end
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
    std::uint64_t name;  // Peer and, with queues per direction, the direction
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
  /// Adds violations for gradients that no update used, and for stages whose newest weight version was dropped.
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
  std::unordered_map<std::size_t, Copy> copies_;  // By the same index; a missing entry has version 0 only
};

inline constexpr std::int32_t kNobody = -1;

/// The result of an op: the worker that made it, and its only transfer.
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

/// The tensors of a program, by the op that makes them.
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

/// Activations of offloaded stages, and how many micro-batches of them are on each device.
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
  std::map<Key, std::size_t> in_host_;  // Worker
};

}  // namespace chimera
