#include "passes/lower.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/dependencies.h"
#include "schedule/offload.h"

namespace chimera {
namespace {

using Copy = std::pair<ReplicaId, StageId>;

Copy copy_of(const Op& op) { return {op.replica, op.stage}; }

class UpdatePlacing {
 public:
  UpdatePlacing(const std::vector<Op>& ops, std::int64_t micro_batches, bool sums)
      : ops_(ops), micro_batches_(micro_batches), sums_(sums) {
    for (std::size_t i = 0; i < ops.size(); ++i) last_use_[{copy_of(ops[i]), ops[i].weight_version}] = i;
  }

  std::vector<PlacedInstruction> run() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      State& state = states_[copy_of(op)];
      if (op.weight_version < state.newest && last_use(op, op.weight_version) == i) drop(i, op, op.weight_version);
      if (!gives_weight_gradient(op.kind)) continue;
      state.last_gradient = op;
      if (++state.gradients == micro_batches_) update(i, state);
    }
    for (auto& [copy, state] : states_) {
      if (state.gradients > 0) update(ops_.size() - 1, state);
    }
    return std::move(placed_);
  }

 private:
  struct State {
    std::int32_t newest = 0;
    std::int64_t gradients = 0;
    Op last_gradient;
  };

  /// Returns the position of the version's last use, or 0.
  [[nodiscard]] std::size_t last_use(const Op& op, std::int32_t version) const {
    const auto found = last_use_.find({copy_of(op), version});
    return found == last_use_.end() ? 0 : found->second;
  }

  void drop(std::size_t after, Op op, std::int32_t version) {
    op.weight_version = version;
    placed_.push_back({after, {InstructionKind::DropWeights, op, {}}});
  }

  void update(std::size_t after, State& state) {
    Op op = state.last_gradient;
    if (last_use(op, state.newest) <= after) drop(after, op, state.newest);
    op.weight_version = ++state.newest;
    state.gradients = 0;
    if (sums_) {
      placed_.push_back({after, {InstructionKind::StartAllReduce, {}, {}, parameters_of(op.stage)}});
      placed_.push_back({after, {InstructionKind::WaitAllReduce, {}, {}, parameters_of(op.stage)}});
    }
    placed_.push_back({after, {InstructionKind::UpdateWeights, op, {}}});
  }

  const std::vector<Op>& ops_;
  std::int64_t micro_batches_;
  bool sums_;
  std::map<std::pair<Copy, std::int32_t>, std::size_t> last_use_;
  std::map<Copy, State> states_;
  std::vector<PlacedInstruction> placed_;
};

}  // namespace

std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums) {
  std::vector<std::vector<PlacedInstruction>> result(schedule.workers.size());
  if (!schedule.updates) return result;
  for (std::size_t w = 0; w < result.size(); ++w) {
    result[w] = UpdatePlacing(schedule.workers[w], schedule.updates->micro_batches, sums).run();
  }
  return result;
}

namespace {

bool has_backward(const Schedule& schedule) {
  const auto is_backward = [](const Op& op) { return gives_weight_gradient(op.kind); };
  return std::any_of(schedule.workers.begin(), schedule.workers.end(),
                     [&](const auto& ops) { return std::any_of(ops.begin(), ops.end(), is_backward); });
}

struct Post {
  std::size_t position = 0;
  std::int64_t turn = 0;
  OpIndex maker = kNoOp;  // op indices ascend by sender
  friend auto operator<=>(const Post&, const Post&) = default;
};

struct Send {
  std::uint32_t to = 0;
  std::uint32_t position = 0;
  friend auto operator<=>(const Send&, const Send&) = default;
};

WorkerId worker_id(std::size_t worker) { return WorkerId(static_cast<std::int64_t>(worker)); }

class Lowering {
 public:
  Lowering(const Schedule& schedule, const LoweringOptions& options)
      : schedule_(schedule),
        options_(options),
        table_(schedule),
        start_(unit_start_times(table_, options.pairs)),
        under_way_(schedule.workers.size()),
        trains_(has_backward(schedule)),
        offload_(options.offload) {
    if (options.recompute.contains(StageId(0))) offload_.erase(StageId(0));  // it keeps nothing
    if (schedule.updates) {
      updates_ = place_updates(schedule, options.all_reduces.every_stage);
      all_reduces_.resize(schedule.workers.size());
    } else {
      updates_.resize(schedule.workers.size());
      all_reduces_ = place_all_reduces(table_, start_, options.all_reduces);
    }
    find_ends_of_steps();
  }

  Program run() {
    Program program{schedule_.stages,          schedule_.micro_batches, schedule_.placement, {},
                    options_.all_reduces.tied, options_.steps,          schedule_.slices};
    if (!offload_.empty()) program.most_on_device = most_on_device(options_.pairs);
    program.workers.reserve(schedule_.workers.size());
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) program.workers.push_back(lower_worker(w));
    return program;
  }

 private:
  const Op& op_of(OpIndex op) const {
    return schedule_.workers[table_.worker(op)][op - table_.first(table_.worker(op))];
  }

  std::vector<Instruction> lower_worker(std::size_t w) {
    find_destinations(w);
    place_posts(w);
    const auto& ops = schedule_.workers[w];
    out_ = {};
    out_.reserve(ops.size() + 2 * posts_.size() + 2 * sends_.size() + 2 * all_reduces_[w].size() + 2);
    next_post_ = 0;
    next_all_reduce_ = 0;
    next_update_ = 0;
    num_sums_ = 0;
    offloads_ = offloaded_forwards(ops, offload_, options_.pairs);
    next_load_ = 0;
    is_offloaded_.assign(ops.size(), false);
    for (const OffloadedForward& each : offloads_) is_offloaded_[each.forward] = true;
    start_all_reduces(w, -1);
    for (std::size_t i = 0; i < ops.size(); i += num_concurrent(ops, i, options_.pairs)) lower_at_once(w, i);
    post_receives(ops.size());
    finish(w);
    return std::move(out_);
  }

  void lower_at_once(std::size_t w, std::size_t begin) {
    const auto& ops = schedule_.workers[w];
    const std::size_t end = begin + num_concurrent(ops, begin, options_.pairs);
    post_receives(begin);
    end_steps_before(start_[table_.first(w) + static_cast<OpIndex>(begin)]);
    for (; next_load_ < offloads_.size() && offloads_[next_load_].load == begin; ++next_load_) {
      add(InstructionKind::Load, ops[offloads_[next_load_].backward]);
    }
    for (std::size_t i = begin; i < end; ++i) recompute(ops[i]);
    for (std::size_t i = begin; i < end; ++i) wait_for_inputs(w, i);
    for (std::size_t i = begin; i < end; ++i) {
      add(InstructionKind::Compute, ops[i]);
      out_.back().op.paired = i + 1 < end;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (destination_[i] != kHere) send(w, i);
      if (is_offloaded_[i]) add(InstructionKind::Offload, ops[i]);
      start_all_reduces(w, static_cast<std::int64_t>(i));
      update_weights(w, i);
    }
  }

  void find_destinations(std::size_t w) {
    const auto& ops = schedule_.workers[w];
    destination_.assign(ops.size(), kHere);
    input_.assign(ops.size(), kNoOp);
    sends_.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const OpIndex consumer = table_.consumer(ops[i]);
      if (consumer != kNoOp && table_.worker(consumer) != w) {
        destination_[i] = static_cast<std::uint32_t>(table_.worker(consumer));
        sends_.push_back({destination_[i], static_cast<std::uint32_t>(i)});
      }
      const OpIndex input = table_.inputs(ops[i])[0];
      if (input != kNoOp && table_.worker(input) != w) input_[i] = input;
    }
    if (options_.discipline == ChannelDiscipline::SerialPair) std::sort(sends_.begin(), sends_.end());
  }

  void place_posts(std::size_t w) {
    makers_.clear();
    for (const OpIndex input : input_) {
      if (input != kNoOp) makers_.push_back(input);
    }
    std::sort(makers_.begin(), makers_.end());
    posts_.clear();
    for (std::size_t begin = 0; begin < makers_.size();) {
      std::size_t end = begin + 1;
      while (end < makers_.size() && makers_[end] < table_.first(table_.worker(makers_[begin]) + 1)) ++end;
      place_channel(w, begin, end);
      begin = end;
    }
    std::sort(posts_.begin(), posts_.end());
  }

  void place_channel(std::size_t w, std::size_t begin, std::size_t end) {
    const std::size_t peer = table_.worker(makers_[begin]);
    turns_.clear();
    std::size_t turn = 0;
    for (std::size_t k = begin; k < end; ++k) turns_.push_back(turn = turn_position(w, turn, makers_[k]));
    const auto ahead = static_cast<std::size_t>(options_.receives_ahead);
    auto send = std::lower_bound(sends_.begin(), sends_.end(), Send{static_cast<std::uint32_t>(peer), 0});
    std::size_t behind = 0;
    for (std::size_t k = 0; k < turns_.size(); ++k) {
      std::size_t position = k < ahead ? 0 : turns_[k - ahead];
      if (options_.discipline == ChannelDiscipline::SerialPair) {
        for (; send != sends_.end() && send->to == peer && send->position < turns_[k]; ++send) {
          behind = send->position + num_concurrent(schedule_.workers[w], send->position, options_.pairs);
        }
        position = std::max(position, behind);
      }
      posts_.push_back({position, start_[makers_[begin + k]], makers_[begin + k]});
    }
  }

  /// Returns the position of the first op from `from` on that is later than `maker` in t.
  std::size_t turn_position(std::size_t w, std::size_t from, OpIndex maker) const {
    const std::size_t size = schedule_.workers[w].size();
    const auto turn = [&](std::size_t worker, OpIndex op) { return std::pair(start_[op], worker); };
    const auto maker_turn = turn(table_.worker(maker), maker);
    const auto is_before = [&](std::size_t i) {
      return turn(w, table_.first(w) + static_cast<OpIndex>(i)) < maker_turn;
    };
    std::size_t low = from;
    std::size_t step = 1;
    while (low + step <= size && is_before(low + step - 1)) {
      low += step;
      step *= 2;
    }
    std::size_t high = std::min(low + step - 1, size);
    while (low < high) {  // start times ascend along a worker's list
      const std::size_t middle = low + (high - low) / 2;
      is_before(middle) ? low = middle + 1 : high = middle;
    }
    return low;
  }

  /// Clears `paired`, which lower_at_once() sets for the first Compute of a pair.
  void add(InstructionKind kind, Op op, WorkerId peer = {}) {
    op.paired = false;
    out_.push_back({kind, op, peer});
  }

  void post_receives(std::size_t position) {
    for (; next_post_ < posts_.size() && posts_[next_post_].position == position; ++next_post_) {
      const OpIndex maker = posts_[next_post_].maker;
      add(InstructionKind::PostReceive, op_of(maker), worker_id(table_.worker(maker)));
    }
  }

  void recompute(const Op& op) {
    if (!gives_input_gradient(op.kind) || !options_.recompute.contains(op.stage)) return;
    add(InstructionKind::Recompute, op);
  }

  void wait_for_inputs(std::size_t w, std::size_t i) {
    const Op& op = schedule_.workers[w][i];
    if (input_[i] != kNoOp) {
      add(InstructionKind::WaitReceive, op_of(input_[i]), worker_id(table_.worker(input_[i])));
    }
    if (!gives_input_gradient(op.kind)) return;
    const std::size_t forward = table_.find(OpKind::Forward, op.stage, op.micro_batch, op.slice) - table_.first(w);
    if (destination_[forward] != kHere && is_answered(schedule_.workers[w][forward])) wait_for_send(w, forward);
  }

  /// Returns whether an arriving gradient shows that the op's send has completed.
  bool is_answered(const Op& op) const {
    return op.kind == OpKind::Forward && !options_.recompute.contains(op.stage) &&
           table_.find_input_gradient(op.stage, op.micro_batch, op.slice) != kNoOp;
  }

  void send(std::size_t w, std::size_t i) {
    const Op& op = schedule_.workers[w][i];
    const std::uint32_t to = destination_[i];
    if (!is_answered(op)) {
      auto& under_way = under_way_[to];
      if (under_way.empty()) peers_.push_back(to);
      if (static_cast<std::int64_t>(under_way.size()) == options_.sends_behind) {
        wait_for_send(w, under_way.front());
        under_way.erase(under_way.begin());
      }
      under_way.push_back(i);
    }
    add(InstructionKind::StartSend, op, worker_id(to));
  }

  void wait_for_send(std::size_t w, std::size_t i) {
    add(InstructionKind::WaitSend, schedule_.workers[w][i], worker_id(destination_[i]));
  }

  void start_all_reduces(std::size_t w, std::int64_t position) {
    const auto& all_reduces = all_reduces_[w];
    for (; next_all_reduce_ < all_reduces.size() && all_reduces[next_all_reduce_].after <= position;
         ++next_all_reduce_) {
      out_.push_back({InstructionKind::StartAllReduce, {}, {}, all_reduces[next_all_reduce_].group});
    }
  }

  void update_weights(std::size_t w, std::size_t position) {
    const auto& updates = updates_[w];
    for (; next_update_ < updates.size() && updates[next_update_].after == position; ++next_update_) {
      out_.push_back(updates[next_update_].instruction);
    }
  }

  [[nodiscard]] std::int64_t micro_batches_of_a_step() const { return schedule_.micro_batches / options_.steps; }

  void find_ends_of_steps() {
    if (options_.steps == 1) return;
    last_start_.assign(static_cast<std::size_t>(options_.steps), 0);
    for (OpIndex op = 0; op < table_.size(); ++op) {
      auto& last = last_start_[table_.op(op).micro_batch.index() / static_cast<std::size_t>(micro_batches_of_a_step())];
      last = std::max(last, start_[op]);
    }
  }

  /// Sums norms and losses of steps, except the last, whose ops have all started before `time`.
  void end_steps_before(std::int64_t time) {
    while (num_sums_ + 1 < options_.steps && last_start_[static_cast<std::size_t>(num_sums_)] < time) end_step();
  }

  void end_step() { out_.push_back({.kind = InstructionKind::ReduceScalars, .step = num_sums_++}); }

  void finish(std::size_t w) {
    std::sort(peers_.begin(), peers_.end());
    for (const std::uint32_t peer : peers_) {
      for (const std::size_t i : under_way_[peer]) wait_for_send(w, i);
      under_way_[peer].clear();
    }
    peers_.clear();
    for (const AllReduceStart& all_reduce : all_reduces_[w]) {
      out_.push_back({InstructionKind::WaitAllReduce, {}, {}, all_reduce.group});
    }
    while (num_sums_ < options_.steps) end_step();
    if (trains_ && !schedule_.updates) out_.push_back({InstructionKind::OptimizerStep, {}, {}});
  }

  static constexpr std::uint32_t kHere = std::numeric_limits<std::uint32_t>::max();
  const Schedule& schedule_;
  const LoweringOptions& options_;
  OpTable table_;
  std::vector<std::int64_t> start_;
  std::vector<std::vector<std::size_t>> under_way_;       // [peer]: sends in flight without an answering gradient
  std::vector<std::vector<AllReduceStart>> all_reduces_;  // [worker], in order of start
  std::vector<std::vector<PlacedInstruction>> updates_;
  std::vector<std::int64_t> last_start_;  // [step]: start of its last op, if there are several steps
  bool trains_;
  std::set<StageId> offload_;
  // State of the current worker:
  std::vector<Instruction> out_;
  std::vector<std::uint32_t> destination_;  // [op]: worker that needs its result, or kHere
  std::vector<OpIndex> input_;              // [op]: input from another worker, or kNoOp
  std::vector<Send> sends_;                 // sends; with SerialPair, sorted by peer, then position
  std::vector<OpIndex> makers_;             // inputs from other workers, ascending and thus grouped by sender
  std::vector<std::size_t> turns_;
  std::vector<Post> posts_;  // receives, in order of posting
  std::vector<std::uint32_t> peers_;
  std::vector<OffloadedForward> offloads_;
  std::vector<bool> is_offloaded_;  // [op]
  std::size_t next_load_ = 0;
  std::size_t next_post_ = 0;
  std::size_t next_all_reduce_ = 0;
  std::size_t next_update_ = 0;
  std::int32_t num_sums_ = 0;
};

}  // namespace

Program lower(const Schedule& schedule, const LoweringOptions& options) { return Lowering(schedule, options).run(); }

Schedule forward_only(const Schedule& schedule) {
  Schedule result = schedule;
  result.updates.reset();
  for (auto& ops : result.workers) {
    std::erase_if(ops, [](const Op& op) { return op.kind != OpKind::Forward; });
    for (Op& op : ops) {
      op.weight_version = 0;
      op.paired = false;
    }
  }
  return result;
}

std::int64_t peak_posted_receives(const Program& program) {
  std::int64_t peak = 0;
  for (const auto& instructions : program.workers) {
    std::int64_t posted = 0;
    for (const Instruction& instruction : instructions) {
      posted += instruction.kind == InstructionKind::PostReceive;
      posted -= instruction.kind == InstructionKind::WaitReceive;
      peak = std::max(peak, posted);
    }
  }
  return peak;
}

}  // namespace chimera
