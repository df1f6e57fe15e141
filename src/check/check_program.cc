#include "check/check_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace chimera {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

std::uint64_t key(const Op& op) {
  return (static_cast<std::uint64_t>(op.kind) << 62U) | (static_cast<std::uint64_t>(op.stage.value()) << 31U) |
         static_cast<std::uint64_t>(op.micro_batch.value());
}

/// What one end has issued on a queue: sends and receives in order.
struct Issue {
  bool is_send;
  Place place;
};

/// Transfers matched in order: the k-th issue of one end with the k-th of the other.
struct Queue {
  std::vector<Issue> ends[2];
  std::size_t completed = 0;  // matched so far
  bool broken = false;        // a mismatch: nothing completes any more
};

struct TransferState {
  std::size_t queue = kNone;
  std::size_t position[2] = {kNone, kNone};  // in the queue, of the send and of the receive
};

class ProgramRun {
 public:
  ProgramRun(const Program& program, ChannelDiscipline discipline)
      : program_(program),
        discipline_(discipline),
        next_(program.workers.size(), 0),
        queued_(program.workers.size(), true),
        groups_(stage_groups(program.placement)),
        started_(groups_.size(), 0) {}

  std::vector<Violation> run() {
    for (std::size_t w = next_.size(); w-- > 0;) ready_.push_back(w);
    while (!ready_.empty()) {
      const std::size_t worker = ready_.back();
      ready_.pop_back();
      queued_[worker] = false;
      while (next_[worker] < program_.workers[worker].size() && step(worker)) ++next_[worker];
    }
    report_stuck();
    return std::move(violations_);
  }

 private:
  const Instruction& at(Place place) const { return program_.workers[place.worker][place.position]; }

  void report(ViolationKind kind, Place place, const std::string& what) {
    violations_.push_back(
        {kind,
         fmt::format("worker {}, instruction {} ({}): {}", place.worker, place.position, to_text(at(place)), what),
         {place}});
  }

  void wake(std::size_t worker) {
    if (queued_[worker]) return;
    queued_[worker] = true;
    ready_.push_back(worker);
  }

  void wake_all() {
    for (std::size_t w = 0; w < next_.size(); ++w) wake(w);
  }

  /// Runs the worker's next instruction; false where it blocks.
  bool step(std::size_t worker) {
    const Place place{worker, next_[worker]};
    const Instruction& instruction = at(place);
    switch (instruction.kind) {
      case InstructionKind::Compute: compute(place); return true;
      case InstructionKind::Recompute: recompute(place); return true;
      case InstructionKind::StartSend: issue(place, true); return true;
      case InstructionKind::PostReceive: issue(place, false); return true;
      case InstructionKind::WaitSend: return is_complete(place, true);
      case InstructionKind::WaitReceive:
        if (!is_complete(place, false)) return false;
        here_[key(instruction.op)].push_back(worker);
        return true;
      case InstructionKind::StartAllReduce: start_all_reduce(place); return true;
      case InstructionKind::WaitAllReduce: return all_reduce_complete(instruction.op.stage);
      case InstructionKind::ReduceScalars: return reduce_scalars(worker);
      case InstructionKind::OptimizerStep: return true;
    }
    return true;
  }

  bool is_here(std::size_t worker, const Op& maker) const {
    const auto found = here_.find(key(maker));
    return found != here_.end() && std::find(found->second.begin(), found->second.end(), worker) != found->second.end();
  }

  /// The gradient of the stage's output is here, from B or from I.
  bool gradient_is_here(std::size_t worker, const Op& op) const {
    Op maker = op;
    maker.stage = StageId(op.stage.value() + 1);
    for (const OpKind kind : {OpKind::Backward, OpKind::BackwardInput}) {
      maker.kind = kind;
      if (is_here(worker, maker)) return true;
    }
    return false;
  }

  void recompute(Place place) {
    const Op& op = at(place).op;
    Op forward = op;
    forward.kind = OpKind::Forward;
    if (!gives_input_gradient(op.kind)) report(ViolationKind::BadDataFlow, place, "only B and I need a forward");
    if (!is_here(place.worker, forward)) report(ViolationKind::BadDataFlow, place, "its forward has not run here");
    if (is_here(place.worker, op)) report(ViolationKind::BadDataFlow, place, "its backward has run before");
  }

  void compute(Place place) {
    const Op& op = at(place).op;
    Op forward = op;
    forward.kind = OpKind::Forward;
    if (op.kind == OpKind::Forward && op.stage.value() > 0) {
      forward.stage = StageId(op.stage.value() - 1);
      if (!is_here(place.worker, forward)) report(ViolationKind::BadDataFlow, place, "its input is not here");
    } else if (gives_input_gradient(op.kind)) {
      if (!is_here(place.worker, forward)) report(ViolationKind::BadDataFlow, place, "its forward has not run here");
      if (op.stage.value() + 1 < program_.stages && !gradient_is_here(place.worker, op)) {
        report(ViolationKind::BadDataFlow, place, "the gradient of its output is not here");
      }
    } else if (op.kind == OpKind::BackwardWeight) {
      Op input = op;
      input.kind = OpKind::BackwardInput;
      if (!is_here(place.worker, input))
        report(ViolationKind::BadDataFlow, place, "its input gradient has not run here");
    }
    here_[key(op)].push_back(place.worker);
  }

  std::pair<Queue&, int> queue_end(Place place, bool is_send) {
    const std::size_t peer = at(place).peer.index();
    const std::size_t from = is_send ? place.worker : peer;
    const std::size_t to = is_send ? peer : place.worker;
    const bool serial = discipline_ == ChannelDiscipline::SerialPair;
    const auto name = serial ? std::minmax(from, to) : std::pair<const std::size_t&, const std::size_t&>(from, to);
    const int end = serial ? (place.worker == name.first ? 0 : 1) : (is_send ? 0 : 1);
    return {queues_[{name.first, name.second}], end};
  }

  void issue(Place place, bool is_send) {
    const Instruction& instruction = at(place);
    if (is_send && !is_here(place.worker, instruction.op))
      report(ViolationKind::BadDataFlow, place, "the tensor is not here");
    if (instruction.peer.index() >= next_.size() || instruction.peer.index() == place.worker) {
      report(ViolationKind::BadDataFlow, place, "there is no such other worker");
      return;
    }
    const auto [queue, end] = queue_end(place, is_send);
    TransferState& transfer = transfers_[key(instruction.op)];
    transfer.position[is_send ? 0 : 1] = queue.ends[end].size();
    queue.ends[end].push_back({is_send, place});
    match(queue);
    wake(instruction.peer.index());
  }

  void match(Queue& queue) {
    while (!queue.broken && queue.completed < std::min(queue.ends[0].size(), queue.ends[1].size())) {
      const Issue& a = queue.ends[0][queue.completed];
      const Issue& b = queue.ends[1][queue.completed];
      if (a.is_send == b.is_send || !(at(a.place).op == at(b.place).op)) {
        queue.broken = true;
        report(ViolationKind::Mismatch, a.place,
               fmt::format("meets '{}' of worker {}", to_text(at(b.place)), b.place.worker));
        return;
      }
      ++queue.completed;
    }
  }

  bool is_complete(Place place, bool is_send) {
    const auto found = transfers_.find(key(at(place).op));
    const std::size_t position = found == transfers_.end() ? kNone : found->second.position[is_send ? 0 : 1];
    if (position == kNone) {
      report(ViolationKind::BadDataFlow, place, "waits for a transfer that was not issued here");
      return true;
    }
    return queue_end(place, is_send).first.completed > position;
  }

  void start_all_reduce(Place place) {
    const StageId stage = at(place).op.stage;
    const auto& group = groups_[stage.index()];
    if (!std::binary_search(group.begin(), group.end(), WorkerId(static_cast<std::int64_t>(place.worker)))) {
      report(ViolationKind::BadDataFlow, place, "the worker does not hold the stage");
      return;
    }
    ++started_[stage.index()];
    for (const WorkerId member : group) wake(member.index());
  }

  bool all_reduce_complete(StageId stage) const { return started_[stage.index()] >= groups_[stage.index()].size(); }

  bool reduce_scalars(std::size_t worker) {
    if (arrived_.empty()) arrived_.assign(next_.size(), false);
    if (!arrived_[worker]) {
      arrived_[worker] = true;
      if (++num_arrived_ == next_.size()) wake_all();
    }
    return num_arrived_ == next_.size();
  }

  bool is_stuck(std::size_t worker) const { return next_[worker] < program_.workers[worker].size(); }

  /// Whom a stuck worker waits for: the other end, or the first worker that has not joined the collective.
  std::size_t waits_for(std::size_t worker) const {
    const Instruction& instruction = at({worker, next_[worker]});
    if (is_transfer(instruction.kind)) return instruction.peer.index();
    if (instruction.kind == InstructionKind::ReduceScalars) {
      return static_cast<std::size_t>(std::find(arrived_.begin(), arrived_.end(), false) - arrived_.begin());
    }
    for (const WorkerId member : groups_[instruction.op.stage.index()]) {
      if (!has_started(member.index(), instruction.op.stage)) return member.index();
    }
    return worker;
  }

  bool has_started(std::size_t worker, StageId stage) const {
    const auto& instructions = program_.workers[worker];
    return std::any_of(instructions.begin(), instructions.begin() + static_cast<std::ptrdiff_t>(next_[worker]),
                       [&](const Instruction& instruction) {
                         return instruction.kind == InstructionKind::StartAllReduce && instruction.op.stage == stage;
                       });
  }

  void report_stuck() {
    std::vector<std::size_t> order(next_.size(), kNone);
    for (std::size_t w = 0; w < next_.size(); ++w) {
      if (!is_stuck(w)) continue;
      std::vector<Place> path;
      std::size_t worker = w;
      while (is_stuck(worker) && order[worker] == kNone) {
        order[worker] = path.size();
        path.push_back({worker, next_[worker]});
        worker = waits_for(worker);
      }
      if (is_stuck(worker)) path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(order[worker]));
      report_chain(path, worker);
      return;  // one counter-example: the other stuck workers wait for these, or are stuck the same way
    }
  }

  void report_chain(const std::vector<Place>& path, std::size_t last) {
    std::string message;
    for (const Place& place : path) {
      message += fmt::format("{}worker {} is stuck at instruction {} ({})", message.empty() ? "" : "; ", place.worker,
                             place.position, to_text(at(place)));
    }
    if (!is_stuck(last)) message += fmt::format("; worker {} has ended", last);
    violations_.push_back({ViolationKind::Deadlock, message, path});
  }

  const Program& program_;
  ChannelDiscipline discipline_;
  std::vector<Violation> violations_;
  std::vector<std::size_t> next_;   // [worker]: instruction it stands at
  std::vector<std::size_t> ready_;  // workers to try again
  std::vector<bool> queued_;        // [worker]: is in ready_
  std::map<std::pair<std::size_t, std::size_t>, Queue> queues_;
  std::unordered_map<std::uint64_t, TransferState> transfers_;        // by the op that makes the tensor
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> here_;  // workers where an op's result is
  std::vector<std::vector<WorkerId>> groups_;
  std::vector<std::size_t> started_;  // [stage]: members that started its all-reduce
  std::vector<bool> arrived_;         // [worker]: in ReduceScalars
  std::size_t num_arrived_ = 0;
};

}  // namespace

std::vector<Violation> check(const Program& program, ChannelDiscipline discipline) {
  return ProgramRun(program, discipline).run();
}

}  // namespace chimera
