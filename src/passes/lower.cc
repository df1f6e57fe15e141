// LoweringPlan has what the workers must know of each other. WorkerLowering then writes the instructions of one
// worker, op by op, after PostPlacing has decided where its receives are posted. lower.h has the rules for all
// positions.

#include "passes/lower.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>

#include "core/invariant.h"
#include "schedule/dependencies.h"
#include "schedule/offload.h"
#include "schedule/weight_versions.h"

namespace chimera {
namespace {

bool has_backward(const Schedule& schedule) {
  return std::ranges::any_of(schedule.workers, [](const auto& ops) {
    return std::ranges::any_of(ops, [](const Op& op) { return gives_weight_gradient(op.kind); });
  });
}

/// Returns [step]: the start of its last op; nothing for a single step.
std::vector<std::int64_t> last_starts_of_steps(const OpTable& table, const std::vector<std::int64_t>& start,
                                               std::int64_t steps) {
  if (steps == 1) return {};
  std::vector<std::int64_t> last(static_cast<std::size_t>(steps), 0);
  const auto micro_batches_of_a_step = static_cast<std::size_t>(table.schedule().micro_batches / steps);
  for (OpIndex op = 0; op < table.size(); ++op) {
    std::int64_t& of_step = last[table.op(op).micro_batch.index() / micro_batches_of_a_step];
    of_step = std::max(of_step, start[op]);
  }
  return last;
}

std::set<StageId> stages_to_offload(const LoweringOptions& options) {
  std::set<StageId> stages = options.offload;
  if (options.recompute.contains(StageId(0))) stages.erase(StageId(0));  // It keeps nothing
  return stages;
}

// Each worker's program needs facts about all workers (t, consumers, group orders). They are computed once, so that
// lowering takes linear time.
/// What the workers of a lowering share.
struct LoweringPlan {
  const Schedule& schedule;
  const LoweringOptions& options;
  OpTable table{schedule};
  std::vector<std::int64_t> start = unit_start_times(table, options.pairs);  // [op]
  std::set<StageId> offload = stages_to_offload(options);
  std::vector<std::vector<AllReduceStart>> all_reduces =  // [worker], in order of start; none if there are updates
      schedule.updates ? std::vector<std::vector<AllReduceStart>>(schedule.workers.size())
                       : place_all_reduces(table, start, options.all_reduces);
  std::vector<std::vector<PlacedInstruction>> updates =  // [worker]; none in a synchronous schedule
      place_updates(schedule, options.all_reduces.every_stage);
  std::vector<std::int64_t> last_start = last_starts_of_steps(table, start, options.steps);  // [step]
  bool trains = has_backward(schedule);
};

WorkerId worker_id(std::size_t worker) { return WorkerId(static_cast<std::int64_t>(worker)); }

/// A send of the op at `position`.
struct Send {
  std::uint32_t to = 0;
  std::uint32_t position = 0;
  friend auto operator<=>(const Send&, const Send&) = default;
};

/// A receive that is posted before the op at `position`.
struct Post {
  std::size_t position = 0;
  std::int64_t turn = 0;
  OpIndex maker = kNoOp;  // Op indices ascend by sender
  friend auto operator<=>(const Post&, const Post&) = default;
};

/// Places the posts of a worker's receives (see lower() for the rule).
class PostPlacing {
 public:
  /// `sends`: with SerialPair, sorted by peer, then position. `makers`: the inputs from other workers.
  PostPlacing(const LoweringPlan& plan, std::size_t worker, std::span<const Send> sends, std::vector<OpIndex> makers)
      : plan_(plan), worker_(worker), ops_(plan.schedule.workers[worker]), sends_(sends), makers_(std::move(makers)) {
    std::ranges::sort(makers_);  // Groups them by sender
  }

  /// Returns the posts in order.
  std::vector<Post> run() {
    for (std::size_t begin = 0; begin < makers_.size();) {
      const std::size_t peer = plan_.table.worker(makers_[begin]);
      std::size_t end = begin + 1;
      while (end < makers_.size() && plan_.table.worker(makers_[end]) == peer) ++end;
      place_channel(peer, std::span(makers_).subspan(begin, end - begin));
      begin = end;
    }
    std::ranges::sort(posts_);
    return std::move(posts_);
  }

 private:
  // `turns` ascend, because makers of one channel are sorted by their position in t. With SerialPair both ends issue
  // the transfers of a pair in the order t, so a post also waits for the own sends before its turn.
  void place_channel(std::size_t peer, std::span<const OpIndex> makers) {
    std::vector<std::size_t> turns;
    for (const OpIndex maker : makers) turns.push_back(turn_position(turns.empty() ? 0 : turns.back(), maker));
    const auto ahead = static_cast<std::size_t>(plan_.options.receives_ahead);
    auto send = std::ranges::lower_bound(sends_, Send{.to = static_cast<std::uint32_t>(peer)});
    std::size_t behind = 0;
    for (std::size_t k = 0; k < turns.size(); ++k) {
      std::size_t position = k < ahead ? 0 : turns[k - ahead];
      if (plan_.options.receives_ahead == kReceivesAheadOnGpus) position = std::max(position, op_before(turns[k]));
      if (plan_.options.discipline == ChannelDiscipline::SerialPair) {
        for (; send != sends_.end() && send->to == peer && send->position < turns[k]; ++send)
          behind = send->position + num_concurrent(ops_, send->position, plan_.options.pairs);
        position = std::max(position, behind);
      }
      posts_.push_back({.position = position, .turn = plan_.start[makers[k]], .maker = makers[k]});
    }
  }

  /// Returns the position of the op before `position`, or of the pair.
  [[nodiscard]] std::size_t op_before(std::size_t position) const {
    if (position == 0) return 0;
    const bool is_pair = position > 1 && num_concurrent(ops_, position - 2, plan_.options.pairs) == 2;
    return position - (is_pair ? 2 : 1);
  }

  /// Returns the position of the first op from `from` on that is later than `maker` in t.
  std::size_t turn_position(std::size_t from, OpIndex maker) const {
    const auto turn = [&](std::size_t worker, OpIndex op) { return std::pair(plan_.start[op], worker); };
    const auto maker_turn = turn(plan_.table.worker(maker), maker);
    const auto is_before = [&](std::size_t i) {
      return turn(worker_, plan_.table.first(worker_) + static_cast<OpIndex>(i)) < maker_turn;
    };
    std::size_t low = from;
    std::size_t high = ops_.size();
    while (low < high) {  // Start times ascend along a worker's list
      const std::size_t middle = low + (high - low) / 2;
      is_before(middle) ? low = middle + 1 : high = middle;
    }
    return low;
  }

  const LoweringPlan& plan_;
  std::size_t worker_;
  const std::vector<Op>& ops_;
  std::span<const Send> sends_;
  std::vector<OpIndex> makers_;
  std::vector<Post> posts_;
};

/// Writes the instructions of one worker, op by op.
class WorkerLowering {
 public:
  WorkerLowering(const LoweringPlan& plan, std::size_t worker)
      : plan_(plan),
        worker_(worker),
        ops_(plan.schedule.workers[worker]),
        destination_(ops_.size(), kHere),
        input_(ops_.size(), kNoOp),
        is_offloaded_(ops_.size(), false) {
    for (const OffloadedForward& each : loads_) is_offloaded_[each.forward] = true;
    std::vector<Send> sends;
    std::vector<OpIndex> makers;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const OpIndex consumer = plan.table.consumer(ops_[i]);
      if (consumer != kNoOp && plan.table.worker(consumer) != worker) {
        destination_[i] = static_cast<std::uint32_t>(plan.table.worker(consumer));
        sends.push_back({.to = destination_[i], .position = static_cast<std::uint32_t>(i)});
      }
      // Only the first input is an op of another stage, so only this one can come by message.
      const OpIndex input = plan.table.inputs(ops_[i])[0];
      if (input != kNoOp && plan.table.worker(input) != worker) makers.push_back(input_[i] = input);
    }
    if (plan.options.discipline == ChannelDiscipline::SerialPair) std::ranges::sort(sends);
    out_.reserve(ops_.size() + 2 * makers.size() + 2 * sends.size() + 2 * all_reduces_.size() + 2);
    posts_ = PostPlacing(plan, worker, sends, std::move(makers)).run();
  }

  std::vector<Instruction> run() {
    start_all_reduces(-1);
    for (std::size_t i = 0; i < ops_.size(); i += num_concurrent(ops_, i, plan_.options.pairs)) lower_at_once(i);
    post_receives(ops_.size());
    finish();
    return std::move(out_);
  }

 private:
  void lower_at_once(std::size_t begin) {
    const std::size_t end = begin + num_concurrent(ops_, begin, plan_.options.pairs);
    post_receives(begin);
    end_steps_before(plan_.start[plan_.table.first(worker_) + static_cast<OpIndex>(begin)]);
    for (; next_load_ < loads_.size() && loads_[next_load_].load == begin; ++next_load_)
      add(InstructionKind::Load, ops_[loads_[next_load_].backward]);
    for (std::size_t i = begin; i < end; ++i) recompute(ops_[i]);
    for (std::size_t i = begin; i < end; ++i) wait_for_inputs(i);
    for (std::size_t i = begin; i < end; ++i) {
      add(InstructionKind::Compute, ops_[i]);
      out_.back().op.paired = i + 1 < end;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (destination_[i] != kHere) send(i);
      if (is_offloaded_[i]) add(InstructionKind::Offload, ops_[i]);
      start_all_reduces(static_cast<std::int64_t>(i));
      for (; !updates_.empty() && updates_.front().after == i; updates_ = updates_.subspan(1))
        out_.push_back(updates_.front().instruction);
    }
  }

  /// Clears `paired`, which lower_at_once() sets for the first Compute of a pair.
  void add(InstructionKind kind, Op op, WorkerId peer = {}) {
    op.paired = false;
    out_.push_back({.kind = kind, .op = op, .peer = peer});
  }

  void post_receives(std::size_t position) {
    for (; next_post_ < posts_.size() && posts_[next_post_].position == position; ++next_post_) {
      const OpIndex maker = posts_[next_post_].maker;
      add(InstructionKind::PostReceive, plan_.table.op(maker), worker_id(plan_.table.worker(maker)));
    }
  }

  void recompute(const Op& op) {
    if (!gives_input_gradient(op.kind) || !plan_.options.recompute.contains(op.stage)) return;
    add(InstructionKind::Recompute, op);
  }

  void wait_for_inputs(std::size_t i) {
    const Op& op = ops_[i];
    if (input_[i] != kNoOp)
      add(InstructionKind::WaitReceive, plan_.table.op(input_[i]), worker_id(plan_.table.worker(input_[i])));
    if (!gives_input_gradient(op.kind)) return;
    const OpIndex found = plan_.table.find(OpKind::Forward, op.stage, op.micro_batch, op.slice);
    require_invariant(found != kNoOp, "lower: a backward has no forward; check() the schedule first");
    const std::size_t forward = found - plan_.table.first(worker_);
    // The gradient is here, so the peer has received the activation: this wait returns at once and frees the tensor.
    if (destination_[forward] != kHere && is_answered(ops_[forward])) wait_for_send(forward);
  }

  // The peer sends the gradient of an activation only after it has received the activation, so no wait for the send is
  // needed before. A recomputed stage frees its output early instead, and waits for the send like other sends.
  /// Returns whether an arriving gradient shows that the op's send has completed.
  bool is_answered(const Op& op) const {
    return op.kind == OpKind::Forward && !plan_.options.recompute.contains(op.stage) &&
           plan_.table.find_input_gradient(op.stage, op.micro_batch, op.slice) != kNoOp;
  }

  void send(std::size_t i) {
    if (!is_answered(ops_[i])) {
      auto& under_way = under_way_[destination_[i]];
      if (std::ssize(under_way) == plan_.options.sends_behind) {
        wait_for_send(under_way.front());
        under_way.erase(under_way.begin());
      }
      under_way.push_back(i);
    }
    add(InstructionKind::StartSend, ops_[i], worker_id(destination_[i]));
  }

  void wait_for_send(std::size_t i) { add(InstructionKind::WaitSend, ops_[i], worker_id(destination_[i])); }

  void start_all_reduces(std::int64_t position) {
    for (; !all_reduces_.empty() && all_reduces_.front().after <= position; all_reduces_ = all_reduces_.subspan(1))
      out_.push_back({.kind = InstructionKind::StartAllReduce, .group = all_reduces_.front().group});
  }

  /// Sums norms and losses of steps, except the last, whose ops have all started before `time`.
  void end_steps_before(std::int64_t time) {
    while (num_sums_ + 1 < plan_.options.steps && plan_.last_start[static_cast<std::size_t>(num_sums_)] < time)
      end_step();
  }

  void end_step() { out_.push_back({.kind = InstructionKind::ReduceScalars, .step = num_sums_++}); }

  void finish() {
    for (const auto& [peer, sends] : under_way_)
      for (const std::size_t i : sends) wait_for_send(i);
    // All waits come at the end: nothing before the sum of the norms needs the summed gradients.
    for (const AllReduceStart& all_reduce : plan_.all_reduces[worker_])
      out_.push_back({.kind = InstructionKind::WaitAllReduce, .group = all_reduce.group});
    while (num_sums_ < plan_.options.steps) end_step();
    if (plan_.trains && !plan_.schedule.updates) out_.push_back({.kind = InstructionKind::OptimizerStep});
  }

  static constexpr std::uint32_t kHere = std::numeric_limits<std::uint32_t>::max();
  const LoweringPlan& plan_;
  std::size_t worker_;
  const std::vector<Op>& ops_;
  std::vector<std::uint32_t> destination_;  // [op]: worker that needs its result, or kHere
  std::vector<OpIndex> input_;              // [op]: input from another worker, or kNoOp
  std::vector<Post> posts_;                 // In order
  std::size_t next_post_ = 0;
  std::vector<bool> is_offloaded_;  // [op]
  std::vector<OffloadedForward> loads_ =
      offloaded_forwards(ops_, plan_.offload, plan_.options.pairs);  // In order of their loads
  std::size_t next_load_ = 0;
  std::span<const AllReduceStart> all_reduces_ = plan_.all_reduces[worker_];  // Not yet started
  std::span<const PlacedInstruction> updates_ = plan_.updates[worker_];       // Not yet written
  std::map<std::uint32_t, std::vector<std::size_t>>
      under_way_;  // [peer]: unfinished sends without an answering gradient
  std::int32_t num_sums_ = 0;
  std::vector<Instruction> out_;
};

}  // namespace

std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums) {
  std::vector<std::vector<PlacedInstruction>> result(schedule.workers.size());
  for (std::size_t w = 0; w < result.size(); ++w) {
    for (const VersionChange& change : version_changes(schedule, w)) {
      const auto place = [&](const Instruction& instruction) {
        result[w].push_back({.after = change.after - 1, .instruction = instruction});
      };
      const bool is_update = change.change > 0;
      if (is_update && sums) {
        place({.kind = InstructionKind::StartAllReduce, .group = parameters_of(change.op.stage)});
        place({.kind = InstructionKind::WaitAllReduce, .group = parameters_of(change.op.stage)});
      }
      place({.kind = is_update ? InstructionKind::UpdateWeights : InstructionKind::DropWeights, .op = change.op});
    }
  }
  return result;
}

Program lower(const Schedule& schedule, const LoweringOptions& options) {
  const LoweringPlan plan{schedule, options};
  Program program{.stages = schedule.stages,
                  .micro_batches = schedule.micro_batches,
                  .placement = schedule.placement,
                  .workers = {},
                  .tied = options.all_reduces.tied,
                  .steps = options.steps,
                  .slices = schedule.slices};
  if (!plan.offload.empty()) program.most_on_device = most_on_device(options.pairs);
  const std::vector<bool> holds = holds_a_stage(schedule.placement, schedule.workers.size());
  program.workers.resize(schedule.workers.size());
  for (std::size_t w = 0; w < schedule.workers.size(); ++w)
    if (holds[w]) program.workers[w] = WorkerLowering(plan, w).run();
  return program;
}

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
