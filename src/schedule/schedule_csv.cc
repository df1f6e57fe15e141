#include "schedule/schedule_csv.h"

#include <charconv>
#include <map>

#include "schedule/csv_shape.h"
#include "schedule/schedule_json.h"

namespace chimera {
namespace {

/// Whether the cells alone, without replicas and weight versions, read back to everything but the name.
bool is_plain(const Schedule& schedule) {
  if (schedule.updates || schedule.micro_batch_scale != 1) return false;
  if (schedule.workers.empty() || schedule.workers.front().empty()) return false;
  const std::int64_t ops = num_ops(schedule);
  if (schedule.stages > ops || schedule.micro_batches > ops) return false;  // the reader takes such ids for a mistake
  CsvShape shape;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    for (const Op& op : schedule.workers[w]) {
      if (op.replica != ReplicaId(0) || op.weight_version != 0) return false;
      if (op.stage.value() < 0 || op.stage.value() >= schedule.stages) return false;
      shape.add(op, w);
    }
  }
  return shape.num_stages() == schedule.stages && shape.num_micro_batches() == schedule.micro_batches &&
         shape.placement() == schedule.placement;
}

class Writer {
 public:
  explicit Writer(const Schedule& schedule) {
    if (!is_plain(schedule)) text_ = "# " + header_to_json(schedule) + "\n";
  }

  void cell(std::int64_t stage, std::string_view action) {
    separate();
    number(stage);
    text_ += action;
  }
  void cell(std::int64_t stage, std::string_view action, const Op& op) {
    cell(stage, action);
    add_micro_batch(op);
  }
  /// An op, or half a cell of a pair.
  void compute(const Op& op) {
    const bool ends_pair = in_pair_;
    in_pair_ = op.paired && !ends_pair;
    if (!ends_pair) separate();
    if (in_pair_) text_ += '(';
    add(op);
    if (in_pair_) text_ += ';';
    if (ends_pair) text_ += ")OVERLAP_F_B";
  }
  void end_row() {
    text_ += '\n';
    in_row_ = false;
  }
  std::string text() { return std::move(text_); }

 private:
  void separate() {
    if (in_row_) text_ += ',';
    in_row_ = true;
  }
  void add(const Op& op) {
    number(op.stage.value());
    text_ += letter(op.kind);
    add_micro_batch(op);
    if (op.weight_version != 0) suffix('v', op.weight_version);
  }
  void add_micro_batch(const Op& op) {
    number(op.micro_batch.value());
    if (op.replica != ReplicaId(0)) suffix('r', op.replica.value());
  }
  void number(std::int64_t value) {
    char digits[24];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    text_.append(digits, end);
  }
  void suffix(char name, std::int64_t value) {
    text_ += name;
    number(value);
  }

  std::string text_;
  bool in_row_ = false;
  bool in_pair_ = false;
};

/// A transfer as PyTorch names it: by the sender's stage where it is sent, by the receiver's where it is received.
void write_transfer(Writer& out, const Instruction& instruction) {
  const Op& op = instruction.op;
  const bool forward = op.kind == OpKind::Forward;
  if (instruction.kind == InstructionKind::StartSend) {
    out.cell(op.stage.value(), forward ? "SEND_F" : "SEND_B", op);
  } else {
    out.cell(op.stage.value() + (forward ? 1 : -1), forward ? "RECV_F" : "RECV_B", op);
  }
}

void write_worker(Writer& out, const std::vector<Instruction>& instructions) {
  std::map<StageId, std::int64_t> backwards_left;
  for (const Instruction& instruction : instructions) {
    if (instruction.kind != InstructionKind::Compute || !gives_weight_gradient(instruction.op.kind)) continue;
    ++backwards_left[instruction.op.stage];
  }
  std::int64_t finished = -1;  // the stage whose last backward was written; its send comes first
  const auto write_finished = [&] {
    if (finished >= 0) out.cell(finished, "REDUCE_GRAD");
    finished = -1;
  };
  for (const Instruction& instruction : instructions) {
    if (instruction.kind == InstructionKind::StartSend) {
      write_transfer(out, instruction);
      continue;
    }
    write_finished();
    if (instruction.kind == InstructionKind::PostReceive) write_transfer(out, instruction);
    if (instruction.kind != InstructionKind::Compute) continue;
    out.compute(instruction.op);
    if (gives_weight_gradient(instruction.op.kind) && --backwards_left[instruction.op.stage] == 0) {
      finished = instruction.op.stage.value();
    }
  }
  write_finished();
  out.end_row();
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  Writer out(schedule);
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops) out.compute(op);
    out.end_row();
  }
  return out.text();
}

std::string to_csv(const Schedule& schedule, const Program& program) {
  Writer out(schedule);
  for (const auto& instructions : program.workers) write_worker(out, instructions);
  return out.text();
}

}  // namespace chimera
