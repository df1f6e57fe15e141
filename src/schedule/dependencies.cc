#include "schedule/dependencies.h"

#include <algorithm>

#include "core/error.h"

namespace chimera {

// One table per kind that occurs, because most schedules have only F and B: four dense tables of 10^8 cells would need
// 1.6 GB. A schedule of a user may repeat an op. The first one counts, so that checks of such a schedule end.
OpTable::OpTable(const Schedule& schedule)
    : schedule_(&schedule),
      micro_batches_(static_cast<std::size_t>(schedule.micro_batches)),
      slices_(static_cast<std::size_t>(schedule.slices)),
      first_(schedule.workers.size() + 1, 0) {
  for (std::size_t w = 0; w < schedule.workers.size(); ++w)
    first_[w + 1] = first_[w] + static_cast<OpIndex>(schedule.workers[w].size());
  worker_.resize(first_.back());
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    std::fill(worker_.begin() + first_[w], worker_.begin() + first_[w + 1], static_cast<std::uint32_t>(w));
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const Op& op = schedule.workers[w][i];
      auto& table = at_[static_cast<std::size_t>(op.kind)];
      if (table.empty())
        table.assign(static_cast<std::size_t>(schedule.stages * schedule.micro_batches * schedule.slices), kNoOp);
      OpIndex& entry = table[cell(op.stage, op.micro_batch, op.slice)];
      if (entry == kNoOp) entry = first_[w] + static_cast<OpIndex>(i);
    }
  }
}

std::vector<std::int64_t> unit_start_times(const OpTable& table, Pairs pairs,
                                           std::span<const std::int64_t> worker_units) {
  // With worker_units {12, 24}, worker 1 is half as fast as worker 0; generate/detours.cc times slow workers this way.
  const auto duration = [&](OpIndex op) {
    return unit_duration(table.op(op).kind) * (worker_units.empty() ? 1 : worker_units[table.worker(op)]);
  };
  std::vector<std::int64_t> start(table.size(), 0);
  std::vector<std::int64_t> worker_free(table.schedule().workers.size(), 0);
  // Ops are visited after their inputs and in the order of their workers, so one pass over them suffices.
  OpIndex visited = 0;
  OpIndex second = kNoOp;  // Second op of the pair whose first op was visited last
  const auto visit = [&](OpIndex index) {
    ++visited;
    // Both ops of a pair are visited, one right after the other. The visit of the first has timed the second, too.
    if (index == second) return;
    // `free` is when the worker has ended its ops so far. Inputs of both ops of a pair delay the start of both.
    const std::span<const Op> ops = table.at_once(index, pairs);
    std::int64_t& free = worker_free[table.worker(index)];
    for (const Op& op : ops) {
      for (const OpIndex input : table.inputs(op))
        if (input != kNoOp) free = std::max(free, start[input] + duration(input));
    }
    std::fill_n(start.begin() + index, ops.size(), free);
    for (std::size_t i = 0; i < ops.size(); ++i) free += duration(static_cast<OpIndex>(index + i));
    if (ops.size() > 1) second = index + 1;
  };
  visit_in_dependency_order(table, visit, pairs);
  // An op on a cycle is never visited. Its start would stay 0, and callers would sort ops by a time without meaning.
  if (visited != table.size())
    throw ScheduleError("schedule '" + table.schedule().name +
                        "' has a cycle of waiting workers; run `chimera check` on it");
  return start;
}

}  // namespace chimera
