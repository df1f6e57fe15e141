// unroll() repeats the orders of a step, for asynchronous schedules with the end of each step among the beginning of
// the next, and then states the weight version of each op. lower_continuous() lowers runs of growing length until their
// middle repeats; ContinuousProgram::piece() then makes any step of a longer run from the pieces that are stored.

#include "passes/unroll.h"

#include <algorithm>
#include <map>

#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

using Ops = std::vector<Op>;

void require_unrollable(const Schedule& step, std::int64_t steps) {
  if (steps < 1) reject("steps must be at least 1, not {}", steps);
  const std::int64_t slots = std::max(num_ops(step), step.stages * step.micro_batches * step.slices);
  if (slots > kMaxOps / steps) reject("{} steps of {} ops are more than {} ops; use fewer", steps, slots, kMaxOps);
  if (step.updates && step.placement.num_replicas() > 1)
    reject("schedule '{}' is asynchronous with {} replicas; only one can run without a flush", step.name,
           step.placement.num_replicas());
}

Ops shift_micro_batches(Ops ops, std::int64_t micro_batches) {
  for (Op& op : ops) op.micro_batch = MicroBatchId(op.micro_batch.value() + micro_batches);
  return ops;
}

// Each op that ends a micro-batch frees one activation, so one forward of the next step may follow it: the worker never
// holds more than in a single step, and it does not wait between steps.
/// Appends a worker's next step, its warm-up spread over the last `drain` ops of `stream`.
void append_without_flush(Ops& stream, std::size_t drain, const Ops& next, std::size_t warm_up) {
  const Ops draining(stream.end() - static_cast<std::ptrdiff_t>(drain), stream.end());
  stream.resize(stream.size() - drain);
  std::size_t taken = 0;
  for (const Op& op : draining) {
    stream.push_back(op);
    if (gives_weight_gradient(op.kind) && taken < warm_up) stream.push_back(next[taken++]);
  }
  stream.insert(stream.end(), next.begin() + static_cast<std::ptrdiff_t>(taken), next.end());
}

bool is_forward(const Op& op) { return op.kind == OpKind::Forward; }

std::size_t leading_forwards(const Ops& ops) {
  return static_cast<std::size_t>(std::ranges::find_if_not(ops, is_forward) - ops.begin());
}

std::size_t ops_behind_forwards(const Ops& ops) {
  return static_cast<std::size_t>(std::find_if(ops.rbegin(), ops.rend(), is_forward) - ops.rbegin());
}

Ops repeat(const Ops& step, std::int64_t steps, std::int64_t micro_batches, bool flush) {
  const std::size_t drain = ops_behind_forwards(step);
  const std::size_t warm_up = leading_forwards(step);
  Ops stream;
  stream.reserve(step.size() * static_cast<std::size_t>(steps));
  for (std::int64_t k = 0; k < steps; ++k)
    append_without_flush(stream, flush || k == 0 ? 0 : drain, shift_micro_batches(step, k * micro_batches), warm_up);
  return stream;
}

/// Returns the micro-batches that a worker may have in flight, or 0 to keep the order of its step.
std::size_t count_admitted(const Schedule& step, const Ops& ops) {
  if (!step.updates || step.updates->delay || ops.empty()) return 0;
  const std::size_t forwards = leading_forwards(ops);
  const StageId stage = ops.front().stage;
  // Only a worker of one stage that runs all its forwards before its first backward gets another order.
  const bool one_stage = std::ranges::all_of(ops, [&](const Op& op) { return op.stage == stage; });
  if (!one_stage || forwards + ops_behind_forwards(ops) != ops.size()) return 0;
  // A micro-batch keeps its version until its backward. With V versions of a stage, at most V - 1 updates may come in
  // between.
  const std::int64_t by_versions = (step.updates->versions - 1) * step.updates->micro_batches + 1;
  return std::max(forwards, static_cast<std::size_t>(std::min(step.stages - stage.value(), by_versions)));
}

/// Puts `admitted` forwards first, then one after each op that ends a micro-batch.
Ops bound_in_flight(const Ops& ops, std::size_t admitted) {
  Ops forwards;
  Ops others;
  for (const Op& op : ops) (is_forward(op) ? forwards : others).push_back(op);
  std::size_t taken = std::min(admitted, forwards.size());
  Ops stream(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(taken));
  stream.reserve(ops.size());
  for (const Op& op : others) {
    stream.push_back(op);
    if (gives_weight_gradient(op.kind) && taken < forwards.size()) stream.push_back(forwards[taken++]);
  }
  return stream;
}

// Follows the rule of AsynchronousUpdates: a micro-batch keeps the version of its forward until its last backward.
/// Weight versions of a stage, assigned in its worker's order.
class StageVersions {
 public:
  StageVersions(const AsynchronousUpdates& updates, std::int64_t micro_batches)
      : updates_(updates),
        backwards_(static_cast<std::size_t>(micro_batches / updates.micro_batches + 1), 0),
        used_(static_cast<std::size_t>(micro_batches), 0) {}

  std::int64_t of(const Op& op) {
    std::int64_t& version = used_[op.micro_batch.index()];
    const std::int64_t update = op.micro_batch.value() / updates_.micro_batches;
    if (op.kind == OpKind::Forward)
      version = updates_.delay ? std::max<std::int64_t>(0, update - *updates_.delay) : newest_;
    if (gives_weight_gradient(op.kind)) {
      ++backwards_[static_cast<std::size_t>(update)];
      while (backwards_[static_cast<std::size_t>(newest_)] == updates_.micro_batches) ++newest_;
    }
    return version;
  }

 private:
  AsynchronousUpdates updates_;
  std::vector<std::int64_t> backwards_;  // [update]: weight gradients so far
  std::vector<std::int64_t> used_;       // [micro-batch]: version
  std::int64_t newest_ = 0;
};

void state_versions(Schedule& stream) {
  for (auto& ops : stream.workers) {
    std::map<StageId, StageVersions> stages;
    for (Op& op : ops) {
      StageVersions& stage = stages.try_emplace(op.stage, *stream.updates, stream.micro_batches).first->second;
      op.weight_version = static_cast<std::int32_t>(stage.of(op));
    }
  }
}

void require_whole_updates(const Schedule& step) {
  if (step.micro_batches % step.updates->micro_batches == 0) return;
  reject("schedule {}: {} micro-batches make an update, which does not divide the {} of a step", step.name,
         step.updates->micro_batches, step.micro_batches);
}

std::vector<std::size_t> ends_of_pieces(const std::vector<Instruction>& instructions, std::int64_t steps) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < instructions.size(); ++i)
    if (instructions[i].kind == InstructionKind::ReduceScalars) ends.push_back(i + 1);
  ends.resize(static_cast<std::size_t>(steps), instructions.size());
  ends.back() = instructions.size();
  return ends;
}

std::vector<Instruction> piece_of(const ContinuousProgram& stream, std::size_t worker, std::int64_t piece) {
  const auto& instructions = stream.program.workers[worker];
  const auto& ends = stream.ends[worker];
  const auto at = static_cast<std::size_t>(piece);
  const auto first = instructions.begin() + static_cast<std::ptrdiff_t>(at == 0 ? 0 : ends[at - 1]);
  return {first, instructions.begin() + static_cast<std::ptrdiff_t>(ends[at])};
}

void shift(std::vector<Instruction>& piece, const ContinuousProgram& stream, std::int64_t steps) {
  for (Instruction& instruction : piece) {
    if (instruction.kind == InstructionKind::ReduceScalars) instruction.step += static_cast<std::int32_t>(steps);
    if (!names_an_op(instruction.kind)) continue;
    Op& op = instruction.op;
    op.micro_batch = MicroBatchId(op.micro_batch.value() + steps * stream.micro_batches);
    op.weight_version += static_cast<std::int32_t>(steps * stream.updates);
  }
}

// In the middle of a long run all pieces are alike. It is enough to compare two: a piece depends only on the pieces
// near it, and both have as many neighbors as steps can be in flight.
/// Returns whether the middle piece equals the piece before it, shifted by a step.
bool repeats(const ContinuousProgram& stream) {
  const std::int64_t middle = stream.program.steps / 2;
  for (std::size_t w = 0; w < stream.program.workers.size(); ++w) {
    auto before = piece_of(stream, w, middle - 1);
    shift(before, stream, 1);
    if (before != piece_of(stream, w, middle)) return false;
  }
  return true;
}

}  // namespace

Schedule unroll(const Schedule& step, std::int64_t steps) {
  require_unrollable(step, steps);
  Schedule stream = step;
  stream.micro_batches = step.micro_batches * steps;
  for (auto& ops : stream.workers) {
    const std::size_t at_work = count_admitted(step, ops);
    ops = at_work > 0 ? bound_in_flight(repeat(ops, steps, step.micro_batches, /*flush=*/true), at_work)
                      : repeat(ops, steps, step.micro_batches, /*flush=*/!step.updates);
  }
  if (step.updates) state_versions(stream);
  return stream;
}

std::int64_t steps_in_flight(const Schedule& step) {
  return step.updates ? (step.stages + step.micro_batches - 1) / step.micro_batches : 1;
}

std::int64_t steps_to_simulate(const Schedule& step) {
  // so that one step in the middle has neither start nor end
  return step.updates ? 2 * steps_in_flight(step) + 2 : 1;
}

std::vector<Instruction> ContinuousProgram::piece(std::size_t worker, std::int64_t step, std::int64_t first) const {
  const std::int64_t middle = program.steps / 2;
  const std::int64_t left_out = steps - program.steps;
  // Steps of the beginning are stored under their own number, steps of the end at the same distance from the end. The
  // steps in between are all the piece before the middle.
  const std::int64_t at = std::max(std::min(step, middle - 1), step - left_out);
  auto result = piece_of(*this, worker, at);
  shift(result, *this, first + step - at);
  return result;
}

// A run of a million steps is not lowered as a whole. Runs of growing length are, until their middle repeats: then the
// middle piece, shifted, stands for all steps in between.
ContinuousProgram lower_continuous(const Schedule& step, std::int64_t steps, LoweringOptions options) {
  require_whole_updates(step);
  ContinuousProgram stream{steps, step.micro_batches, step.micro_batches / step.updates->micro_batches, {}, {}, {}};
  // In shorter runs the middle pieces might be equal only because both drain.
  for (std::int64_t length = steps_to_simulate(step);; length *= 2) {
    options.steps = std::min(length, steps);
    stream.schedule = unroll(step, options.steps);
    stream.program = lower(stream.schedule, options);
    stream.ends = mapped(stream.program.workers,
                         [&](const auto& instructions) { return ends_of_pieces(instructions, options.steps); });
    if (options.steps == steps || repeats(stream)) return stream;
  }
}

}  // namespace chimera
