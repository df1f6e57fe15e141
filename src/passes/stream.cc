#include "passes/stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "passes/unroll.h"

namespace chimera {
namespace {

void require_whole_updates(const Schedule& step) {
  if (step.micro_batches % step.updates->micro_batches == 0) return;
  throw ConfigError(fmt::format("schedule {}: {} micro-batches make an update, which does not divide the {} of a step",
                                step.name, step.updates->micro_batches, step.micro_batches));
}

/// Where each piece of a worker's instructions ends.
std::vector<std::size_t> ends_of_pieces(const std::vector<Instruction>& instructions, std::int64_t steps) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].kind == InstructionKind::ReduceScalars) ends.push_back(i + 1);
  }
  ends.resize(static_cast<std::size_t>(steps), instructions.size());
  ends.back() = instructions.size();
  return ends;
}

std::vector<Instruction> cut(const Stream& stream, std::size_t worker, std::int64_t piece) {
  const auto& instructions = stream.program.workers[worker];
  const auto& ends = stream.ends[worker];
  const auto at = static_cast<std::size_t>(piece);
  const auto first = instructions.begin() + static_cast<std::ptrdiff_t>(at == 0 ? 0 : ends[at - 1]);
  return {first, instructions.begin() + static_cast<std::ptrdiff_t>(ends[at])};
}

/// The same instruction `steps` later.
void shift(std::vector<Instruction>& piece, const Stream& stream, std::int64_t steps) {
  for (Instruction& instruction : piece) {
    if (instruction.kind == InstructionKind::ReduceScalars) instruction.step += static_cast<std::int32_t>(steps);
    if (!names_an_op(instruction.kind)) continue;
    Op& op = instruction.op;
    op.micro_batch = MicroBatchId(op.micro_batch.value() + steps * stream.micro_batches);
    op.weight_version += static_cast<std::int32_t>(steps * stream.updates);
  }
}

/// Whether the piece in the middle of the program is the one before it, a step later.
bool repeats(const Stream& stream) {
  const std::int64_t middle = stream.program.steps / 2;
  for (std::size_t w = 0; w < stream.program.workers.size(); ++w) {
    auto before = cut(stream, w, middle - 1);
    shift(before, stream, 1);
    if (before != cut(stream, w, middle)) return false;
  }
  return true;
}

}  // namespace

std::vector<Instruction> Stream::piece(std::size_t worker, std::int64_t step, std::int64_t first) const {
  const std::int64_t middle = program.steps / 2;
  const std::int64_t left_out = steps - program.steps;
  const std::int64_t at = std::max(std::min(step, middle - 1), step - left_out);
  auto result = cut(*this, worker, at);
  shift(result, *this, first + step - at);
  return result;
}

Stream lower_stream(const Schedule& step, std::int64_t steps, LoweringOptions options) {
  require_whole_updates(step);
  Stream stream{steps, step.micro_batches, step.micro_batches / step.updates->micro_batches, {}, {}, {}};
  // In a shorter run the pieces of the middle might be alike because they drain.
  for (std::int64_t length = steps_to_time(step);; length *= 2) {
    options.steps = std::min(length, steps);
    stream.schedule = unroll(step, options.steps);
    stream.program = lower(stream.schedule, options);
    stream.ends.clear();
    for (const auto& instructions : stream.program.workers) {
      stream.ends.push_back(ends_of_pieces(instructions, options.steps));
    }
    if (options.steps == steps || repeats(stream)) return stream;
  }
}

}  // namespace chimera
