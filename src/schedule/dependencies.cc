#include "schedule/dependencies.h"

#include <algorithm>

#include "core/error.h"

namespace chimera {

OpTable::OpTable(const Schedule& schedule) : schedule_(&schedule), first_(schedule.workers.size() + 1, 0) {
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    first_[w + 1] = first_[w] + static_cast<OpIndex>(schedule.workers[w].size());
  }
  worker_.resize(first_.back());
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    std::fill(worker_.begin() + first_[w], worker_.begin() + first_[w + 1], static_cast<std::uint32_t>(w));
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const Op& op = schedule.workers[w][i];
      auto& table = at_[static_cast<std::size_t>(op.kind)];
      if (table.empty()) table.assign(static_cast<std::size_t>(schedule.stages * schedule.micro_batches), kNoOp);
      OpIndex& entry =
          table[op.stage.index() * static_cast<std::size_t>(schedule.micro_batches) + op.micro_batch.index()];
      if (entry == kNoOp) entry = first_[w] + static_cast<OpIndex>(i);
    }
  }
}

OpIndex OpTable::find(OpKind kind, StageId stage, MicroBatchId micro_batch) const {
  const auto& table = at_[static_cast<std::size_t>(kind)];
  if (table.empty()) return kNoOp;
  return table[stage.index() * static_cast<std::size_t>(schedule_->micro_batches) + micro_batch.index()];
}

OpIndex OpTable::find_input_gradient(StageId stage, MicroBatchId micro_batch) const {
  const OpIndex whole = find(OpKind::Backward, stage, micro_batch);
  return whole != kNoOp ? whole : find(OpKind::BackwardInput, stage, micro_batch);
}

std::array<OpIndex, 2> OpTable::inputs(const Op& op) const {
  switch (op.kind) {
    case OpKind::Forward:
      if (op.stage == StageId(0)) return {kNoOp, kNoOp};
      return {find(OpKind::Forward, StageId(op.stage.value() - 1), op.micro_batch), kNoOp};
    case OpKind::Backward:
    case OpKind::BackwardInput: {
      const OpIndex forward = find(OpKind::Forward, op.stage, op.micro_batch);
      if (op.stage.value() + 1 == schedule_->stages) return {kNoOp, forward};
      return {find_input_gradient(StageId(op.stage.value() + 1), op.micro_batch), forward};
    }
    case OpKind::BackwardWeight: return {kNoOp, find(OpKind::BackwardInput, op.stage, op.micro_batch)};
  }
  return {kNoOp, kNoOp};
}

OpIndex OpTable::consumer(const Op& op) const {
  if (op.kind == OpKind::Forward) {
    if (op.stage.value() + 1 == schedule_->stages) return kNoOp;
    return find(OpKind::Forward, StageId(op.stage.value() + 1), op.micro_batch);
  }
  if (!gives_input_gradient(op.kind) || op.stage == StageId(0)) return kNoOp;
  return find_input_gradient(StageId(op.stage.value() - 1), op.micro_batch);
}

namespace {

/// The run that visit_in_dependency_order makes: workers advance until their next op lacks an input, and are woken when
/// the op they wait for is done. Each op is tried at most once for every input, so the run is linear in the ops.
class Walk {
 public:
  Walk(const OpTable& table, const std::function<void(OpIndex)>& visit)
      : table_(table),
        visit_(visit),
        done_(table.size(), false),
        next_(table.schedule().workers.size()),
        waits_for_(next_.size(), kNoOp) {
    for (std::size_t w = 0; w < next_.size(); ++w) next_[w] = table.first(w);
  }

  std::vector<std::size_t> run() {
    for (std::size_t w = next_.size(); w-- > 0;) ready_.push_back(w);
    while (!ready_.empty()) {
      const std::size_t worker = ready_.back();
      ready_.pop_back();
      advance(worker);
    }
    std::vector<std::size_t> visited(next_.size());
    for (std::size_t w = 0; w < next_.size(); ++w) visited[w] = next_[w] - table_.first(w);
    return visited;
  }

 private:
  void advance(std::size_t worker) {
    while (next_[worker] != table_.first(worker + 1)) {
      const OpIndex index = next_[worker];
      const Op& op = table_.op(index);
      for (const OpIndex input : table_.inputs(op)) {
        if (input == kNoOp || done_[input]) continue;
        waits_for_[worker] = input;
        return;
      }
      done_[index] = true;
      visit_(index);
      ++next_[worker];
      wake(table_.consumer(op), index);
    }
  }

  // An input made at the op's own stage is on the op's own worker, so only the consumer next door can be waiting
  // elsewhere; a misplaced op of an unchecked schedule may wait for its own stage on another worker.
  void wake(OpIndex consumer, OpIndex done) {
    if (consumer != kNoOp) wake_worker(table_.worker(consumer), done);
    const Op& op = table_.op(done);
    for (const OpKind kind : {OpKind::Backward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
      const OpIndex same_stage = table_.find(kind, op.stage, op.micro_batch);
      if (same_stage != kNoOp) wake_worker(table_.worker(same_stage), done);
    }
  }

  void wake_worker(std::size_t worker, OpIndex done) {
    if (waits_for_[worker] != done) return;
    waits_for_[worker] = kNoOp;
    ready_.push_back(worker);
  }

  const OpTable& table_;
  const std::function<void(OpIndex)>& visit_;
  std::vector<bool> done_;
  std::vector<OpIndex> next_;
  std::vector<OpIndex> waits_for_;
  std::vector<std::size_t> ready_;
};

}  // namespace

std::vector<std::size_t> visit_in_dependency_order(const OpTable& table, const std::function<void(OpIndex)>& visit) {
  return Walk(table, visit).run();
}

std::vector<std::int64_t> unit_start_times(const OpTable& table) {
  const auto duration = [](OpKind kind) { return kind == OpKind::Backward ? 2 : 1; };
  std::vector<std::int64_t> start(table.size(), 0);
  std::vector<std::int64_t> worker_free(table.schedule().workers.size(), 0);
  OpIndex visited = 0;
  visit_in_dependency_order(table, [&](OpIndex index) {
    const Op& op = table.op(index);
    std::int64_t& free = worker_free[table.worker(index)];
    for (const OpIndex input : table.inputs(op)) {
      if (input != kNoOp) free = std::max(free, start[input] + duration(table.op(input).kind));
    }
    start[index] = free;
    free += duration(op.kind);
    ++visited;
  });
  if (visited != table.size()) {
    throw ScheduleError("schedule '" + table.schedule().name +
                        "' has a cycle of waiting workers; run `chimera check` on it");
  }
  return start;
}

}  // namespace chimera
