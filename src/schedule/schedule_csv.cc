// Writing: `Writer` appends one cell after another to one string. With a program, write_worker() puts PyTorch's actions
// for messages between the ops. Reading: `CsvReader` cuts rows and cells off the front of the text. A cell is an op, a
// pair of ops, or another action of PyTorch (kDropped), which is counted and dropped. The first line `# {...}`, if
// there is one, decides which suffixes a cell may have. Without it, the shape follows from the ops at the end.

#include "schedule/schedule_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

#include "core/printable.h"
#include "core/reject.h"
#include "schedule/schedule_json.h"

namespace chimera {
namespace {

/// Returns the placement that the ops of a text without a `# {...}` line imply: one replica, with each of `stages` on
/// the worker that names it first, or worker 0. Requires stages in range.
Placement implied_placement(const std::vector<std::vector<Op>>& workers, std::int64_t stages) {
  std::vector<WorkerId> holders(static_cast<std::size_t>(stages));
  // Later rows come first, so that the first row that names a stage decides.
  for (std::size_t w = workers.size(); w-- > 0;)
    for (const Op& op : workers[w]) holders[op.stage.index()] = WorkerId(static_cast<std::int64_t>(w));
  return {{std::move(holders)}};
}

// PyTorch reads plain files, so they are preferred: the first line is written only if something would be lost.
/// Returns whether plain cells express everything but the name.
bool is_plain(const Schedule& schedule) {
  if (schedule.updates || schedule.slices != 1 || schedule.groups != 1 || schedule.micro_batch_scale != 1 ||
      schedule.order || schedule.late_forwards)
    return false;
  // The reader takes an empty first row for a mistake.
  if (schedule.workers.empty() || schedule.workers.front().empty()) return false;
  const std::int64_t ops = num_ops(schedule);
  if (schedule.stages > ops || schedule.micro_batches > ops) return false;  // The reader rejects such ids
  std::int64_t stages = 0;
  std::int64_t micro_batches = 0;
  for (const auto& worker : schedule.workers) {
    for (const Op& op : worker) {
      if (op.replica != ReplicaId(0) || op.weight_version != 0 || op.stage.value() < 0) return false;
      stages = std::max(stages, op.stage.value() + 1);
      micro_batches = std::max(micro_batches, op.micro_batch.value() + 1);
    }
  }
  return stages == schedule.stages && micro_batches == schedule.micro_batches &&
         implied_placement(schedule.workers, stages) == schedule.placement;
}

// Appends to one string without intermediate ones, because a schedule may have many millions of ops.
class Writer {
 public:
  explicit Writer(const Schedule& schedule) : has_slices_(schedule.slices != 1) {
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
  void compute(const Op& op) {
    // PyTorch writes a pair as one cell: `(`, the first op, `;`, the second op, `)OVERLAP_F_B`.
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
    if (has_slices_) suffix('.', op.slice);
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

  bool has_slices_;
  std::string text_;
  bool in_row_ = false;
  bool in_pair_ = false;
};

/// Writes a transfer as PyTorch names it: a send by the sender's stage, a receive by the receiver's.
void write_transfer(Writer& out, const Instruction& instruction) {
  const Op& op = instruction.op;
  const bool forward = op.kind == OpKind::Forward;
  if (instruction.kind == InstructionKind::StartSend)
    out.cell(op.stage.value(), forward ? "SEND_F" : "SEND_B", op);
  else
    out.cell(op.stage.value() + (forward ? 1 : -1), forward ? "RECV_F" : "RECV_B", op);
}

// PyTorch's REDUCE_GRAD comes after a stage's last weight gradient, and after the sends of that op: its runtime sends
// the gradient before it starts the sum.
void write_worker(Writer& out, const std::vector<Instruction>& instructions) {
  std::map<StageId, std::int64_t> backwards_left;
  for (const Instruction& instruction : instructions) {
    if (instruction.kind != InstructionKind::Compute || !gives_weight_gradient(instruction.op.kind)) continue;
    ++backwards_left[instruction.op.stage];
  }
  std::int64_t finished = -1;  // Stage whose last backward was written; its sends come before REDUCE_GRAD
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
    if (gives_weight_gradient(instruction.op.kind) && --backwards_left[instruction.op.stage] == 0)
      finished = instruction.op.stage.value();
  }
  write_finished();
  out.end_row();
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Removes the text up to `separator` or the end, and the separator, from the front. Returns it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::string_view taken = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(taken.size() + 1, text.size()));
  return taken;
}

// The number saturates instead of failing: the check of the schedule names the op with an id out of range.
/// Removes a decimal number from the front and returns it, at most 2^31 - 1; nothing without a digit.
std::optional<std::int64_t> take_number(std::string_view& text) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text.substr(0, digits))
    value = std::min<std::int64_t>(value * 10 + (c - '0'), std::numeric_limits<std::int32_t>::max());
  text.remove_prefix(digits);
  return value;
}

/// Removes the `.3` of a cell's micro-batch, and returns the slice; nothing without a number.
std::optional<std::int64_t> take_slice(std::string_view& text) {
  if (text.empty() || text.front() != '.') return std::nullopt;
  text.remove_prefix(1);
  return take_number(text);
}

/// Returns 5 for `r5` if `name` is r, 0 if the text starts otherwise, nothing without a number.
std::optional<std::int64_t> take_suffix(std::string_view& text, char name) {
  if (text.empty() || text.front() != name) return 0;
  text.remove_prefix(1);
  return take_number(text);
}

/// Cells of PyTorch that are dropped, by the ends of their names.
struct Dropped {
  std::vector<std::string_view> names;
  bool has_micro_batch;  // Other actions are of a whole stage
  const char* note;
};
// SEND_F_RECV_B and SEND_B_RECV_F are of torch 2.5; other tools write the waits.
const std::array<Dropped, 3> kDropped = {
    Dropped{{"SEND_F_RECV_B", "SEND_B_RECV_F", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_RECV_F",
             "WAIT_SEND_B", "WAIT_RECV_B"},
            true,
            "sends and receives are dropped: lowering makes the messages of a schedule"},
    Dropped{{"UNSHARD", "RESHARD"},
            false,
            "UNSHARD and RESHARD are dropped: a schedule does not contain how stages are stored"},
    Dropped{
        {"REDUCE_GRAD"}, false, "REDUCE_GRAD are dropped: gradients are summed after the last backward of a stage"}};

// Without a header, the shape of the schedule follows from the ops.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  ReadSchedule read() {
    if (text_.starts_with('#')) read_header();
    for (; !text_.empty(); ++row_) read_row(take_until(text_, '\n'));
    drop_blank_end();
    if (!has_header_) infer_shape();
    ReadSchedule result{.schedule = std::move(schedule_), .notes = {}};
    for (std::size_t i = 0; i < kDropped.size(); ++i)
      if (dropped_[i] > 0) result.notes.push_back(fmt::format("{}: {} {}", source_, dropped_[i], kDropped[i].note));
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_at(row_, column_, what); }
  [[noreturn]] void fail_at(std::int64_t row, std::int64_t column, const std::string& what) const {
    reject("{}: row {}, column {}: {}", source_, row, column, what);
  }
  [[noreturn]] void refuse(std::string_view cell) const {
    // After torch 2.5, the letter B changed its meaning. The message therefore names both old forms, although only one
    // of them is in this cell.
    if (is_whole_backward_of_older_torch(cell))
      fail(fmt::format(
          "'{}' is not a cell of a schedule; in torch 2.5 and older, BW is the whole backward and B the input "
          "gradient: write B for BW, and I for B",
          printable(cell)));
    const bool sliced = schedule_.slices != 1;
    fail(
        fmt::format("'{}' is not a cell of a schedule; expected a cell such as {} (stage, F B I or W, micro-batch{}{})",
                    printable(cell), sliced ? "2F5.3" : "2F5", sliced ? ", slice" : "", suffixes()));
  }

  static bool is_whole_backward_of_older_torch(std::string_view cell) {
    if (!take_number(cell) || !cell.starts_with("BW")) return false;
    cell.remove_prefix(2);
    return take_number(cell) && cell.empty();
  }

  [[nodiscard]] const char* suffixes() const {
    if (schedule_.updates) return "; r and v name replica and weight version";
    return has_header_ ? "; r names the replica" : "";
  }

  void read_header() {
    schedule_ = header_from_json(take_until(text_, '\n').substr(1), source_);
    has_header_ = true;
    row_ = 2;
  }

  void read_row(std::string_view row) {
    schedule_.workers.emplace_back();
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row_ == 1 && trim(row).empty())
      fail("expected the ops of worker 0; a first worker without ops needs the first line # {...}");
    for (column_ = 1; !row.empty(); ++column_)
      if (const std::string_view cell = trim(take_until(row, ',')); !cell.empty()) add(cell);
  }

  // Editors and spreadsheets add blank lines at the end of a file.
  /// Drops rows without ops at the end, except those of workers with stages.
  void drop_blank_end() {
    std::int64_t placed = 1;
    for (const auto& replica : schedule_.placement.worker_of)
      for (const WorkerId worker : replica) placed = std::max(placed, worker.value() + 1);
    auto& workers = schedule_.workers;
    while (std::ssize(workers) > placed && workers.back().empty()) workers.pop_back();
  }

  void add(std::string_view cell) {
    if (cell.front() == '(') {
      add_pair(cell);
    } else if (const auto op = as_op(cell)) {
      add(*op);
    } else {
      const auto dropped = std::ranges::find_if(kDropped, [&](const Dropped& cells) { return is_one_of(cells, cell); });
      if (dropped == kDropped.end()) refuse(cell);
      ++dropped_[static_cast<std::size_t>(dropped - kDropped.begin())];
    }
  }

  void add_pair(std::string_view cell) {
    constexpr std::string_view kEnd = ")OVERLAP_F_B";
    const auto middle = cell.find(';');
    if (!cell.ends_with(kEnd) || middle == cell.npos) refuse(cell);
    auto first = as_op(trim(cell.substr(1, middle - 1)));
    const auto second = as_op(trim(cell.substr(middle + 1, cell.size() - kEnd.size() - middle - 1)));
    if (!first || !second) refuse(cell);
    first->paired = true;
    add(*first);
    add(*second);
  }

  void add(const Op& op) {
    if (++num_ops_ > kMaxOpsOfFile) fail(fmt::format("more than {} ops; a file has at most as many", kMaxOpsOfFile));
    schedule_.workers.back().push_back(op);
  }

  [[nodiscard]] std::optional<Op> as_op(std::string_view cell) const {
    const auto stage = take_number(cell);
    const auto kind = stage && !cell.empty() ? op_kind(cell.front()) : std::nullopt;
    if (!kind) return std::nullopt;
    cell.remove_prefix(1);
    const auto micro_batch = take_number(cell);
    if (!micro_batch) return std::nullopt;
    // A suffix that the first line does not allow stays in the cell, and the cell is refused because it does not end
    // here.
    const auto slice = schedule_.slices != 1 ? take_slice(cell) : 0;
    const auto replica = slice && has_header_ ? take_suffix(cell, 'r') : 0;
    const auto version = replica && schedule_.updates ? take_suffix(cell, 'v') : 0;
    if (!slice || !replica || !version || !cell.empty()) return std::nullopt;
    // Replica and slice have 16 bits in an Op. As in take_number(), larger ids saturate, and check() reports them.
    constexpr std::int64_t kLast = std::numeric_limits<std::int16_t>::max();
    return Op{.kind = *kind,
              .replica = ReplicaId(std::min(*replica, kLast)),
              .stage = StageId(*stage),
              .micro_batch = MicroBatchId(*micro_batch),
              .weight_version = static_cast<std::int32_t>(*version),
              .slice = static_cast<std::int16_t>(std::min(*slice, kLast))};
  }

  [[nodiscard]] bool is_one_of(const Dropped& cells, std::string_view cell) const {
    if (!take_number(cell)) return false;
    return std::ranges::any_of(cells.names, [&](std::string_view name) {
      if (!cell.starts_with(name)) return false;
      std::string_view rest = cell.substr(name.size());
      return (!cells.has_micro_batch || take_tensor(rest)) && rest.empty();
    });
  }

  /// Removes micro-batch, slice and replica of a message. Returns false if a number is missing.
  [[nodiscard]] bool take_tensor(std::string_view& cell) const {
    if (!take_number(cell)) return false;
    if (schedule_.slices != 1 && !take_slice(cell)) return false;
    return !has_header_ || take_suffix(cell, 'r');
  }

  /// Without a header, an id far beyond the number of ops is refused before memory for it is allocated.
  void infer_shape() {
    if (num_ops_ == 0) fail_at(1, 1, "no op in the text; a schedule has cells like 2F5");
    std::int64_t stages = 0;
    std::int64_t micro_batches = 0;
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) {
        const Op& op = schedule_.workers[w][i];
        stages = std::max(stages, op.stage.value() + 1);
        micro_batches = std::max(micro_batches, op.micro_batch.value() + 1);
        for (const auto& [largest, what] : {std::pair{stages, "stage"}, std::pair{micro_batches, "micro-batch"}}) {
          if (largest <= num_ops_) continue;
          fail_at(static_cast<std::int64_t>(w) + 1, static_cast<std::int64_t>(i) + 1,
                  fmt::format("{} {} in a text of {} ops; ids count from 0", what, largest - 1, num_ops_));
        }
      }
    }
    // Every stage has at least an F and a B of each micro-batch.
    if (stages * micro_batches > kMaxOps / 2)
      fail_at(1, 1,
              fmt::format("{} stages times {} micro-batches are more than {} ops", stages, micro_batches, kMaxOps));
    schedule_.name = "csv";
    schedule_.stages = stages;
    schedule_.micro_batches = micro_batches;
    schedule_.placement = implied_placement(schedule_.workers, stages);
  }

  std::string_view text_;  // Rest of the text
  const std::string& source_;
  Schedule schedule_;
  bool has_header_ = false;
  std::int64_t row_ = 1;
  std::int64_t column_ = 1;
  std::int64_t num_ops_ = 0;
  std::array<std::int64_t, kDropped.size()> dropped_{};
};

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

ReadSchedule schedule_from_csv(std::string_view text, const std::string& source) {
  return CsvReader(text, source).read();
}

ReadSchedule schedule_from_text(std::string_view text, const std::string& source) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) throw ConfigError(source + ": is empty; expected a schedule in JSON or CSV");
  // A JSON array is no schedule either, but the reader of JSON has the better message for it.
  if (text[first] == '{' || text[first] == '[') return {schedule_from_json(text, source), {}};
  return schedule_from_csv(text, source);
}

}  // namespace chimera
