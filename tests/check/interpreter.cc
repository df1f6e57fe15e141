#include "check/interpreter.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "check/wait_table.h"

namespace chimera::testing {
namespace {

using Task = std::tuple<OpKind, std::int64_t, std::int64_t, std::int64_t>;  // kind, stage, micro-batch, slice

Task task(OpKind kind, const Op& op, std::int64_t stage_offset = 0, std::int64_t slice_offset = 0) {
  return {kind, op.stage.value() + stage_offset, op.micro_batch.value(), op.slice + slice_offset};
}
Task task(const Op& op) { return task(op.kind, op); }

bool is_on(const Placement& placement, const Op& op, std::size_t worker, std::int64_t micro_batches,
           std::int64_t slices) {
  if (op.slice < 0 || op.slice >= slices) return false;
  if (op.replica.value() < 0 || op.replica.index() >= placement.worker_of.size()) return false;
  const auto& row = placement.worker_of[op.replica.index()];
  return op.stage.value() >= 0 && op.stage.index() < row.size() && row[op.stage.index()].index() == worker &&
         op.micro_batch.value() >= 0 && op.micro_batch.value() < micro_batches;
}

bool places_all(const Placement& placement, std::int64_t stages, std::size_t workers) {
  for (const auto& row : placement.worker_of) {
    if (static_cast<std::int64_t>(row.size()) != stages) return false;
    for (const WorkerId worker : row) {
      if (worker.value() < 0 || worker.index() >= workers) return false;
    }
  }
  return !placement.worker_of.empty();
}

/// Whether `tasks` has F, and B or I and W, exactly once for each stage, micro-batch and slice; only F if nothing runs
/// backward.
bool has_each_once(const std::multiset<Task>& tasks, std::int64_t stages, std::int64_t micro_batches,
                   std::int64_t slices, bool backward) {
  std::multiset<Task> rest = tasks;
  const auto take = [&](OpKind kind, std::int64_t s, std::int64_t slice) {
    const auto found = rest.find({kind, s, slice / slices, slice % slices});
    if (found == rest.end()) return false;
    rest.erase(found);
    return true;
  };
  for (std::int64_t s = 0; s < stages; ++s) {
    for (std::int64_t m = 0; m < micro_batches * slices; ++m) {
      if (!take(OpKind::Forward, s, m)) return false;
      if (backward && !take(OpKind::Backward, s, m) &&
          !(take(OpKind::BackwardInput, s, m) && take(OpKind::BackwardWeight, s, m))) {
        return false;
      }
    }
  }
  return rest.empty();
}

/// Whether the inputs of the op are in `done`.
bool has_inputs(const Op& op, std::int64_t stages, std::int64_t slices, const std::set<Task>& done) {
  const auto has = [&](OpKind kind, std::int64_t stages_on, std::int64_t slices_on = 0) {
    return done.contains(task(kind, op, stages_on, slices_on));
  };
  switch (op.kind) {
    case OpKind::Forward:
      return (op.stage.value() == 0 || has(OpKind::Forward, -1)) && (op.slice == 0 || has(OpKind::Forward, 0, -1));
    case OpKind::BackwardWeight: return has(OpKind::BackwardInput, 0);
    default:
      return has(OpKind::Forward, 0) &&
             (op.stage.value() + 1 == stages || has(OpKind::Backward, 1) || has(OpKind::BackwardInput, 1)) &&
             (op.slice + 1 == slices || has(OpKind::Backward, 0, 1) || has(OpKind::BackwardInput, 0, 1));
  }
}

/// If `together`, a paired op and its successor run at once, so both need their inputs first.
bool ends(const Schedule& schedule, bool together) {
  std::set<Task> done;
  std::vector<std::size_t> next(schedule.workers.size(), 0);
  std::size_t num_ops = 0;
  for (const auto& ops : schedule.workers) num_ops += ops.size();
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t w = 0; w < next.size(); ++w) {
      const auto& ops = schedule.workers[w];
      while (next[w] < ops.size()) {
        const std::size_t first = next[w];
        const std::size_t last = together && ops[first].paired ? first + 1 : first;
        if (!has_inputs(ops[first], schedule.stages, schedule.slices, done) ||
            !has_inputs(ops[last], schedule.stages, schedule.slices, done)) {
          break;
        }
        for (; next[w] <= last; ++next[w]) done.insert(task(ops[next[w]]));
        moves = true;
      }
    }
  }
  return done.size() == num_ops;
}

/// Whether every paired op is a forward before a B or I of another micro-batch, in a synchronous schedule without
/// slices.
bool pairs_mean_something(const Schedule& schedule) {
  for (const auto& ops : schedule.workers) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].paired) continue;
      if (schedule.updates || schedule.slices > 1 || i + 1 == ops.size() || ops[i].kind != OpKind::Forward)
        return false;
      const Op& second = ops[i + 1];
      const bool backward = second.kind == OpKind::Backward || second.kind == OpKind::BackwardInput;
      if (!backward || second.micro_batch == ops[i].micro_batch) return false;
    }
  }
  return true;
}

/// Replays the updates of one stage of one replica; `ops` are its ops in their worker's order.
bool updates_right(const std::vector<Op>& ops, const AsynchronousUpdates& updates) {
  std::set<std::int64_t> ids;
  for (const Op& op : ops) ids.insert(op.micro_batch.value());
  const std::vector<std::int64_t> order(ids.begin(), ids.end());
  std::map<std::int64_t, std::int32_t> version_of;
  std::vector<std::int64_t> summed;  // since the last update
  std::int32_t newest = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::int64_t id = ops[i].micro_batch.value();
    const std::int32_t version = ops[i].weight_version;
    if (version < 0 || version > newest) return false;
    if (ops[i].kind == OpKind::Forward) {
      const auto batch = (std::find(order.begin(), order.end(), id) - order.begin()) / updates.micro_batches;
      if (version != (updates.delay ? std::max<std::int64_t>(0, batch - *updates.delay) : newest)) return false;
    }
    if (version_of.emplace(id, version).first->second != version) return false;
    if (ops[i].kind == OpKind::Backward || ops[i].kind == OpKind::BackwardWeight) {
      summed.push_back(id);
      const auto size = static_cast<std::size_t>(updates.micro_batches);
      const auto first = order.begin() + static_cast<std::ptrdiff_t>(size * static_cast<std::size_t>(newest));
      const auto last = order.begin() + static_cast<std::ptrdiff_t>(
                                            std::min(order.size(), size * (static_cast<std::size_t>(newest) + 1)));
      if (std::find(first, last, id) == last) return false;
      if (summed.size() == size) {
        summed.clear();
        ++newest;
      }
    }
    std::set<std::int32_t> kept = {newest};
    for (std::size_t later = i + 1; later < ops.size(); ++later) {
      if (ops[later].weight_version < newest) kept.insert(ops[later].weight_version);
    }
    if (static_cast<std::int64_t>(kept.size()) > updates.versions) return false;
  }
  return true;
}

bool versions_right(const Schedule& schedule) {
  std::map<std::pair<ReplicaId, StageId>, std::vector<Op>> copies;
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops) {
      if (!schedule.updates && op.weight_version != 0) return false;
      copies[{op.replica, op.stage}].push_back(op);
    }
  }
  if (!schedule.updates) return true;
  if (schedule.updates->micro_batches < 1 || schedule.updates->versions < 1) return false;
  return std::all_of(copies.begin(), copies.end(),
                     [&](const auto& copy) { return updates_right(copy.second, *schedule.updates); });
}

/// Checks of one worker's list alone.
class WorkerList {
 public:
  WorkerList(const Program& program, std::size_t worker, bool trains, bool updates_stages)
      : program_(program), worker_(worker), trains_(trains), updates_stages_(updates_stages) {}

  bool means_something() {
    const auto& list = program_.workers[worker_];
    for (const Instruction& instruction : list) {
      if (instruction.kind == InstructionKind::Offload) offloads_.insert(instruction.op.stage);
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (begins_pair(list[i]) && (i + 1 == list.size() || !can_run_beside(list[i + 1], list[i]))) return false;
      if (!follows(list[i])) return false;
    }
    if (!in_host_.empty() || sends_ != 0 || receives_ != 0 || num_scalars_ != program_.steps) return false;
    if (num_steps_ != (trains_ && !updates_stages_ ? 1 : 0)) return false;
    for (const auto& [copy, weights] : weights_) {
      if (updates_stages_ && (weights.gradients > 0 || !weights.held.contains(weights.newest))) return false;
    }
    const auto groups = stage_groups(program_.placement);
    for (std::int64_t s = 0; trains_ && !updates_stages_ && s < program_.stages; ++s) {
      const auto& group = groups[static_cast<std::size_t>(s)];
      const bool member = std::count(group.begin(), group.end(), WorkerId(static_cast<std::int64_t>(worker_))) > 0;
      if (member && group.size() > 1 && !waited_stages_.contains(s)) return false;
    }
    return true;
  }

 private:
  using Transfer = std::pair<Task, std::int64_t>;  // tensor and peer
  struct Weights {                                 // of a stage of a replica
    std::set<std::int32_t> held = {0};
    std::int32_t newest = 0;
    int gradients = 0;
  };

  static bool begins_pair(const Instruction& instruction) {
    return instruction.kind == InstructionKind::Compute && instruction.op.paired;
  }

  bool can_run_beside(const Instruction& second, const Instruction& first) const {
    return second.kind == InstructionKind::Compute && !second.op.paired && program_.slices == 1 &&
           second.op.micro_batch != first.op.micro_batch &&
           has_inputs(second.op, program_.stages, program_.slices, here_);
  }

  bool follows(const Instruction& instruction) {
    const Transfer transfer{task(instruction.op), instruction.peer.value()};
    const std::int64_t group = instruction.group.value();
    switch (instruction.kind) {
      case InstructionKind::Compute: return compute(instruction.op);
      case InstructionKind::Recompute: return recompute(instruction.op);
      case InstructionKind::PostReceive:
        ++receives_;
        return is_transfer_to_other(transfer) && posted_.insert(transfer).second;
      case InstructionKind::WaitReceive:
        --receives_;
        here_.insert(transfer.first);
        return posted_.contains(transfer) && received_.insert(transfer).second;
      case InstructionKind::StartSend:
        ++sends_;
        return made_.contains(transfer.first) && is_transfer_to_other(transfer) && sent_.insert(transfer).second;
      case InstructionKind::WaitSend: --sends_; return sent_.contains(transfer) && left_.insert(transfer).second;
      case InstructionKind::StartAllReduce:
        return num_scalars_ < program_.steps && holds(group) && started_.insert(group).second;
      case InstructionKind::WaitAllReduce:
        return num_scalars_ < program_.steps && started_.contains(group) && waited_stages_.insert(group).second;
      case InstructionKind::ReduceScalars: return instruction.step == num_scalars_ && num_scalars_++ < program_.steps;
      case InstructionKind::OptimizerStep: ++num_steps_; return num_scalars_ == program_.steps;
      case InstructionKind::UpdateWeights: return update(instruction.op);
      case InstructionKind::Offload: return offload(instruction.op);
      case InstructionKind::Load: return load(instruction.op);
      case InstructionKind::DropWeights:
        return is_here(instruction.op) && weights(instruction.op).held.erase(instruction.op.weight_version) == 1;
    }
    return false;
  }

  bool is_here(const Op& op) const {
    return is_on(program_.placement, op, worker_, program_.micro_batches, program_.slices);
  }

  bool compute(const Op& op) {
    const bool gives_weights = op.kind == OpKind::Backward || op.kind == OpKind::BackwardWeight;
    if (!is_here(op)) return false;
    if (is_summed(op) || (gives_weights && started_.contains(op.stage.value()))) return false;
    if (!weights(op).held.contains(op.weight_version)) return false;
    weights(op).gradients += gives_weights;
    if (!has_inputs(op, program_.stages, program_.slices, here_)) return false;
    made_.insert(task(op));
    here_.insert(task(op));
    if (offloads_.contains(op.stage)) on_device_ += op.kind == OpKind::Forward ? 1 : needs_activations(op) ? -1 : 0;
    return has_room() && !(needs_activations(op) && in_host_.contains(task(OpKind::Forward, op)));
  }

  static bool needs_activations(const Op& op) {
    return op.kind == OpKind::Backward || op.kind == OpKind::BackwardInput;
  }

  bool has_room() const { return program_.most_on_device <= 0 || on_device_ <= program_.most_on_device; }

  bool offload(const Op& op) {
    if (op.kind != OpKind::Forward || !is_here(op) || !here_.contains(task(op))) return false;
    if (here_.contains(task(OpKind::Backward, op)) || here_.contains(task(OpKind::BackwardInput, op))) return false;
    --on_device_;
    return in_host_.insert(task(op)).second;
  }

  bool load(const Op& op) {
    if (!needs_activations(op) || !is_here(op) || in_host_.erase(task(OpKind::Forward, op)) == 0) return false;
    ++on_device_;
    return has_room();
  }

  Weights& weights(const Op& op) { return weights_[{op.replica, op.stage}]; }

  /// Whether the norms and losses of the op's step are already summed.
  bool is_summed(const Op& op) const {
    return op.micro_batch.value() < num_scalars_ * (program_.micro_batches / program_.steps);
  }

  bool update(const Op& op) {
    if (!is_here(op) || is_summed(op)) return false;
    Weights& updated = weights(op);
    if (op.weight_version != ++updated.newest || updated.gradients == 0) return false;
    updated.held.insert(updated.newest);
    updated.gradients = 0;
    if (started_.erase(op.stage.value()) == 0) return true;
    const auto group = stage_groups(program_.placement)[op.stage.index()];
    return group.size() == 1 && waited_stages_.erase(op.stage.value()) == 1;
  }

  bool recompute(const Op& op) {
    if (op.kind != OpKind::Backward && op.kind != OpKind::BackwardInput) return false;
    if (!is_here(op)) return false;
    if (!weights(op).held.contains(op.weight_version) || in_host_.contains(task(OpKind::Forward, op))) return false;
    return here_.contains(task(OpKind::Forward, op, 0)) && !here_.contains(task(op));
  }

  bool holds(std::int64_t stage) const {
    if (stage < 0 || stage >= program_.stages) return false;
    return std::any_of(program_.placement.worker_of.begin(), program_.placement.worker_of.end(),
                       [&](const auto& row) { return row[static_cast<std::size_t>(stage)].index() == worker_; });
  }

  bool is_transfer_to_other(const Transfer& transfer) const {
    return transfer.second >= 0 && transfer.second < static_cast<std::int64_t>(program_.workers.size()) &&
           transfer.second != static_cast<std::int64_t>(worker_);
  }

  const Program& program_;
  std::size_t worker_;
  bool trains_;
  bool updates_stages_;
  std::map<std::pair<ReplicaId, StageId>, Weights> weights_;
  std::set<Task> made_;
  std::set<Task> here_;
  std::set<Transfer> posted_, received_, sent_, left_;
  std::set<std::int64_t> started_, waited_stages_;
  int sends_ = 0;     // started, not yet waited for
  int receives_ = 0;  // posted, not yet waited for
  std::int64_t num_scalars_ = 0;
  int num_steps_ = 0;
  std::set<StageId> offloads_;  // of this worker
  std::set<Task> in_host_;
  std::int64_t on_device_ = 0;  // micro-batches of these stages
};

bool lists_mean_something(const Program& program) {
  std::multiset<Task> computed;
  std::multiset<Task> sent;
  std::multiset<Task> posted;
  bool trains = false;
  bool updates_stages = false;
  for (const auto& instructions : program.workers) {
    for (const Instruction& instruction : instructions) {
      updates_stages = updates_stages || instruction.kind == InstructionKind::UpdateWeights ||
                       instruction.kind == InstructionKind::DropWeights;
      if (instruction.kind == InstructionKind::Compute) computed.insert(task(instruction.op));
      if (instruction.kind == InstructionKind::StartSend) sent.insert(task(instruction.op));
      if (instruction.kind == InstructionKind::PostReceive) posted.insert(task(instruction.op));
      trains = trains || instruction.kind == InstructionKind::OptimizerStep ||
               instruction.kind == InstructionKind::UpdateWeights ||
               instruction.kind == InstructionKind::StartAllReduce ||
               (instruction.kind == InstructionKind::Compute && instruction.op.kind != OpKind::Forward);
    }
  }
  const auto is_set = [](const std::multiset<Task>& tasks) {
    return std::adjacent_find(tasks.begin(), tasks.end()) == tasks.end();
  };
  if (!is_set(sent) || !is_set(posted)) return false;
  if (!has_each_once(computed, program.stages, program.micro_batches, program.slices, trains)) return false;
  for (std::size_t w = 0; w < program.workers.size(); ++w) {
    if (!WorkerList(program, w, trains, updates_stages).means_something()) return false;
  }
  return true;
}

/// Replays only the all-reduces, each of which blocks until all its members have started it.
bool blocking_all_reduces_end(const Program& program) {
  const auto groups = stage_groups(program.placement);
  std::vector<std::vector<std::size_t>> stages(program.workers.size());
  for (std::size_t w = 0; w < stages.size(); ++w) {
    for (const Instruction& instruction : program.workers[w]) {
      if (instruction.kind == InstructionKind::StartAllReduce) stages[w].push_back(instruction.group.index());
    }
  }
  std::vector<std::size_t> next(stages.size(), 0);
  const auto is_at = [&](WorkerId w, std::size_t stage) {
    return next[w.index()] < stages[w.index()].size() && stages[w.index()][next[w.index()]] == stage;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      if (!std::all_of(groups[s].begin(), groups[s].end(), [&](WorkerId w) { return is_at(w, s); })) continue;
      for (const WorkerId w : groups[s]) ++next[w.index()];
      moves = true;
    }
  }
  for (std::size_t w = 0; w < stages.size(); ++w) {
    if (next[w] != stages[w].size()) return false;
  }
  return true;
}

}  // namespace

bool plays(const Schedule& schedule) {
  if (!places_all(schedule.placement, schedule.stages, schedule.workers.size())) return false;
  std::multiset<Task> tasks;
  std::map<MicroBatchId, ReplicaId> replica_of;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const Op& op : schedule.workers[w]) {
      if (!is_on(schedule.placement, op, w, schedule.micro_batches, schedule.slices)) return false;
      if (replica_of.emplace(op.micro_batch, op.replica).first->second != op.replica) return false;
      tasks.insert(task(op));
    }
  }
  return has_each_once(tasks, schedule.stages, schedule.micro_batches, schedule.slices, true) &&
         ends(schedule, false) && pairs_mean_something(schedule) && ends(schedule, true) && versions_right(schedule);
}

bool plays(const Program& program, ChannelDiscipline discipline, std::size_t most_states) {
  if (!places_all(program.placement, program.stages, program.workers.size())) return false;
  if (!lists_mean_something(program) || !blocking_all_reduces_end(program)) return false;
  const WaitTable waits(program, discipline);
  std::size_t states = 1;
  for (const auto& list : program.workers) states = std::min(most_states + 1, states * (list.size() + 1));
  if (states <= most_states) return final_states(waits, most_states) == std::set{waits.end()};
  return final_state(waits, 1) == waits.end() && final_state(waits, 2) == waits.end();
}

}  // namespace chimera::testing
