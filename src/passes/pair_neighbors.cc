#include "passes/pair_neighbors.h"

#include <algorithm>

#include "schedule/dependencies.h"

namespace chimera {
namespace {

void pair_all(std::vector<Op>& ops) {
  for (std::size_t i = 0; i < ops.size(); ++i)
    ops[i].paired = ops[i].kind == OpKind::Forward && i + 1 < ops.size() && gives_input_gradient(ops[i + 1].kind) &&
                    ops[i + 1].micro_batch != ops[i].micro_batch;
}

/// Runs the schedule with its pairs together, and splits pairs that block it.
class Pairing {
 public:
  explicit Pairing(Schedule& schedule)
      : schedule_(schedule), table_(schedule), next_(schedule.workers.size(), 0), is_done_(table_.size(), false) {}

  void run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t w = 0; w < next_.size(); ++w) moves = advance(w) || moves;
      if (!moves) moves = take_one_apart();
    }
  }

 private:
  bool has_inputs(const Op& op) const {
    return std::ranges::all_of(table_.inputs(op), [&](OpIndex input) { return input == kNoOp || is_done_[input]; });
  }

  bool advance(std::size_t w) {
    const auto& ops = schedule_.workers[w];
    const std::size_t before = next_[w];
    while (next_[w] < ops.size()) {
      const auto at_once = concurrent_ops(ops, next_[w], Pairs::Together);
      if (!std::ranges::all_of(at_once, [&](const Op& op) { return has_inputs(op); })) break;
      // Both ops of a pair end together, so neither may be an input of the other: pair_all() takes different
      // micro-batches.
      const auto first = is_done_.begin() + static_cast<std::ptrdiff_t>(table_.first(w) + next_[w]);
      std::fill_n(first, at_once.size(), true);
      next_[w] += at_once.size();
    }
    return next_[w] > before;
  }

  // Some worker is at a pair whose first op could run: its second op waits for a result that in turn waits for the
  // first. In order, the first op runs now. Progress is certain, because the unpaired schedule has no cycle.
  bool take_one_apart() {
    for (std::size_t w = 0; w < next_.size(); ++w) {
      auto& ops = schedule_.workers[w];
      if (next_[w] == ops.size() || !ops[next_[w]].paired || !has_inputs(ops[next_[w]])) continue;
      ops[next_[w]].paired = false;
      return true;
    }
    return false;
  }

  Schedule& schedule_;
  OpTable table_;
  std::vector<std::size_t> next_;  // [worker]: position of the next op to try
  std::vector<bool> is_done_;      // [op]
};

}  // namespace

Schedule pair_neighbors(Schedule schedule) {
  if (schedule.updates || schedule.slices > 1) return schedule;
  for (auto& ops : schedule.workers) pair_all(ops);
  Pairing(schedule).run();
  return schedule;
}

}  // namespace chimera
