#include "passes/lower.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "schedule/dependencies.h"

namespace chimera {
namespace {

/// A tensor that travels between two workers, named by the op that makes it.
struct Message {
  OpIndex maker = kNoOp;
  WorkerId from;
  WorkerId to;
};

/// A place in the topological order: by start time, then worker. Ops of one worker never tie.
using Turn = std::tuple<std::int64_t, std::size_t>;

bool has_backward(const Schedule& schedule) {
  const auto is_backward = [](const Op& op) { return gives_weight_gradient(op.kind); };
  return std::any_of(schedule.workers.begin(), schedule.workers.end(),
                     [&](const auto& ops) { return std::any_of(ops.begin(), ops.end(), is_backward); });
}

class Lowering {
 public:
  Lowering(const Schedule& schedule, const LoweringOptions& options)
      : schedule_(schedule),
        options_(options),
        table_(schedule),
        start_(unit_start_times(table_)),
        all_reduces_(place_all_reduces(table_, start_, options.all_reduces)),
        training_(has_backward(schedule)) {}

  Program run() {
    Program program{schedule_.stages, schedule_.micro_batches, schedule_.placement, {}};
    place_posts();
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) program.workers.push_back(lower_worker(w));
    return program;
  }

 private:
  Turn turn(OpIndex op) const { return {start_[op], table_.worker(op)}; }

  /// The message that carries the op's result to another worker, if it goes to one.
  std::optional<Message> message_of(OpIndex op) const {
    const OpIndex consumer = table_.consumer(table_.op(op));
    if (consumer == kNoOp || table_.worker(consumer) == table_.worker(op)) return std::nullopt;
    return Message{op, WorkerId(static_cast<std::int64_t>(table_.worker(op))),
                   WorkerId(static_cast<std::int64_t>(table_.worker(consumer)))};
  }

  /// Position in the worker's list before which a receive has its turn: the worker's first op later in the order.
  std::size_t turn_position(std::size_t worker, OpIndex maker) const {
    const OpIndex begin = table_.first(worker);
    const OpIndex end = table_.first(worker + 1);
    OpIndex low = begin;
    OpIndex high = end;
    while (low < high) {  // start times ascend along a worker's list
      const OpIndex middle = low + (high - low) / 2;
      const bool before = turn(middle) < turn(maker);
      low = before ? middle + 1 : low;
      high = before ? high : middle;
    }
    return low - begin;
  }

  /// Decides before which op of its receiver every message is posted; posts_[worker][position] in the order t.
  void place_posts() {
    posts_.resize(schedule_.workers.size());
    for (std::size_t w = 0; w < posts_.size(); ++w) posts_[w].resize(schedule_.workers[w].size() + 1);
    std::map<std::pair<WorkerId, WorkerId>, std::vector<Message>> channels;
    for (OpIndex op = 0; op < table_.size(); ++op) {
      if (const auto message = message_of(op)) channels[{message->from, message->to}].push_back(*message);
    }
    for (const auto& [channel, messages] : channels) place_channel(messages);
    for (auto& positions : posts_) {
      for (auto& posts : positions) {
        std::sort(posts.begin(), posts.end(),
                  [&](const Message& a, const Message& b) { return turn(a.maker) < turn(b.maker); });
      }
    }
  }

  void place_channel(const std::vector<Message>& messages) {
    const std::size_t receiver = messages.front().to.index();
    std::vector<std::size_t> turns;
    for (const Message& message : messages) turns.push_back(turn_position(receiver, message.maker));
    const auto ahead = static_cast<std::size_t>(options_.receives_ahead);
    std::size_t behind = 0;  // after the receiver's last send to the sender that precedes the turn
    for (std::size_t k = 0; k < messages.size(); ++k) {
      std::size_t position = k < ahead ? 0 : turns[k - ahead];
      if (options_.discipline == ChannelDiscipline::SerialPair) {
        for (std::size_t i = k == 0 ? 0 : turns[k - 1]; i < turns[k]; ++i) {
          if (sends_to(receiver, i, messages[k].from)) behind = i + 1;
        }
        position = std::max(position, behind);
      }
      posts_[receiver][position].push_back(messages[k]);
    }
  }

  bool sends_to(std::size_t w, std::size_t position, WorkerId peer) const {
    const auto message = message_of(table_.first(w) + static_cast<OpIndex>(position));
    return message && message->to == peer;
  }

  std::vector<Instruction> lower_worker(std::size_t w) {
    out_.clear();
    sent_.clear();
    next_all_reduce_ = 0;
    start_all_reduces(w, -1);
    for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) {
      const OpIndex index = table_.first(w) + static_cast<OpIndex>(i);
      post_receives(w, i);
      wait_for_inputs(index);
      out_.push_back({InstructionKind::Compute, table_.op(index), {}});
      send(index);
      start_all_reduces(w, static_cast<std::int64_t>(i));
    }
    post_receives(w, schedule_.workers[w].size());
    finish(w);
    return std::move(out_);
  }

  void post_receives(std::size_t w, std::size_t position) {
    for (const Message& message : posts_[w][position]) {
      out_.push_back({InstructionKind::PostReceive, table_.op(message.maker), message.from});
    }
  }

  void wait_for_inputs(OpIndex index) {
    const Op& op = table_.op(index);
    const OpIndex input = table_.inputs(op)[0];
    if (input == kNoOp) return;
    if (table_.worker(input) != table_.worker(index)) {
      out_.push_back(
          {InstructionKind::WaitReceive, table_.op(input), WorkerId(static_cast<std::int64_t>(table_.worker(input)))});
    }
    if (!gives_input_gradient(op.kind)) return;
    // The gradient of a sent activation has arrived, so the activation itself has.
    const OpIndex forward = table_.find(OpKind::Forward, op.stage, op.micro_batch);
    if (const auto sent = message_of(forward)) out_.push_back({InstructionKind::WaitSend, op_of(*sent), sent->to});
  }

  /// Whether the receiver answers this message with one that arrives here: an activation whose backward runs.
  bool is_answered(const Message& message) const {
    const Op& op = table_.op(message.maker);
    return op.kind == OpKind::Forward && table_.find_input_gradient(op.stage, op.micro_batch) != kNoOp;
  }

  const Op& op_of(const Message& message) const { return table_.op(message.maker); }

  void send(OpIndex index) {
    const auto message = message_of(index);
    if (!message) return;
    if (!is_answered(*message)) {
      auto& under_way = sent_[message->to];
      if (static_cast<std::int64_t>(under_way.size()) == options_.sends_behind) {
        wait_for_send(under_way.front());
        under_way.pop_front();
      }
      under_way.push_back(*message);
    }
    out_.push_back({InstructionKind::StartSend, op_of(*message), message->to});
  }

  void wait_for_send(const Message& message) {
    out_.push_back({InstructionKind::WaitSend, op_of(message), message.to});
  }

  /// Starts the all-reduces whose turn has come after the op at `position` (-1: before all).
  void start_all_reduces(std::size_t w, std::int64_t position) {
    const auto& all_reduces = all_reduces_[w];
    for (; next_all_reduce_ < all_reduces.size() && all_reduces[next_all_reduce_].after <= position;
         ++next_all_reduce_) {
      out_.push_back({InstructionKind::StartAllReduce, gradients_of(all_reduces[next_all_reduce_].stage), {}});
    }
  }

  void finish(std::size_t w) {
    for (const auto& [peer, under_way] : sent_) {
      for (const Message& message : under_way) wait_for_send(message);
    }
    for (const AllReduceStart& sum : all_reduces_[w]) {
      out_.push_back({InstructionKind::WaitAllReduce, gradients_of(sum.stage), {}});
    }
    out_.push_back({InstructionKind::ReduceScalars, {}, {}});
    if (training_) out_.push_back({InstructionKind::OptimizerStep, {}, {}});
  }

  static Op gradients_of(StageId stage) { return Op{OpKind::Backward, {}, stage, {}}; }

  const Schedule& schedule_;
  const LoweringOptions& options_;
  OpTable table_;
  std::vector<std::int64_t> start_;
  std::vector<std::vector<AllReduceStart>> all_reduces_;  // [worker]
  bool training_;                                         // whether anything runs backward
  std::vector<std::vector<std::vector<Message>>> posts_;  // [worker][position]
  std::size_t next_all_reduce_ = 0;                       // of the worker at hand
  std::vector<Instruction> out_;
  std::map<WorkerId, std::deque<Message>> sent_;  // not yet waited for, not answered
};

}  // namespace

Program lower(const Schedule& schedule, const LoweringOptions& options) { return Lowering(schedule, options).run(); }

Schedule forward_only(const Schedule& schedule) {
  Schedule result = schedule;
  for (auto& ops : result.workers) std::erase_if(ops, [](const Op& op) { return op.kind != OpKind::Forward; });
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
