#include "simulate/memory.h"

#include <algorithm>
#include <utility>

#include "simulate/weight_versions.h"

namespace chimera {
namespace {

/// At that time, so much more (or less).
using Change = std::pair<double, double>;

class Ledger {
 public:
  Ledger(const Schedule& schedule, const CostModel& costs, const Timeline& timeline)
      : schedule_(schedule), costs_(costs), timeline_(timeline), changes_(schedule.workers.size()) {}

  std::vector<std::vector<MemoryPoint>> run(const std::vector<Message>& messages) {
    if (!costs_.memory.empty()) {
      add_weights();
      for (const Message& message : messages) add_buffers(message);
    }
    for (std::size_t w = 0; w < changes_.size(); ++w) add_activations(w);
    std::vector<std::vector<MemoryPoint>> points;
    for (auto& changes : changes_) points.push_back(add_up(changes));
    return points;
  }

 private:
  const StageMemory& memory(StageId stage) const { return costs_.memory[stage.index()]; }

  void hold(std::size_t worker, double from, double until, double amount) {
    changes_[worker].emplace_back(from, amount);
    changes_[worker].emplace_back(until, -amount);
  }

  void add_weights() {
    for (const auto& row : schedule_.placement.worker_of) {
      for (std::size_t s = 0; s < row.size(); ++s) {
        const StageMemory& stage = costs_.memory[s];
        changes_[row[s].index()].emplace_back(0, stage.weights + stage.gradients + stage.optimizer);
      }
    }
    for (std::size_t w = 0; w < changes_.size(); ++w) {
      for (const VersionChange& change : version_changes(schedule_, w)) {
        changes_[w].emplace_back(timeline_.workers[w].ops[change.after - 1].end,
                                 change.change * memory(change.stage).weights);
      }
    }
  }

  void add_buffers(const Message& message) {
    const Op& made = schedule_.workers[message.from.worker][message.from.position];
    const TimedOp& used = timeline_.workers[message.to.worker].ops[message.to.position];
    const bool forward = made.kind == OpKind::Forward;
    const StageId boundary = forward ? StageId(made.stage.value() + 1) : made.stage;
    const double bytes = memory(boundary).boundary * schedule_.micro_batch_scale;
    const double made_at = timeline_.workers[message.from.worker].ops[message.from.position].end;
    hold(message.from.worker, made_at, message.arrived, bytes);
    hold(message.to.worker, message.arrived, forward ? used.start : used.end, bytes);
  }

  void add_activations(std::size_t worker) {
    const auto& ops = schedule_.workers[worker];
    const bool in_bytes = !costs_.memory.empty();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const TimedOp& time = timeline_.workers[worker].ops[i];
      const double whole = in_bytes ? memory(ops[i].stage).activations : share_of_stage(schedule_);
      // Recomputation keeps the boundary from the forward on, and the rest from the B or I on.
      const double kept = in_bytes && !costs_.recompute.empty() ? memory(ops[i].stage).boundary : whole;
      const double scale = schedule_.micro_batch_scale;
      if (ops[i].kind == OpKind::Forward) changes_[worker].emplace_back(time.start, kept * scale);
      if (gives_input_gradient(ops[i].kind) && kept != whole)
        changes_[worker].emplace_back(time.start, (whole - kept) * scale);
      if (gives_weight_gradient(ops[i].kind)) changes_[worker].emplace_back(time.end, -whole * scale);
    }
  }

  /// What is freed at a time counts before what is taken then.
  static std::vector<MemoryPoint> add_up(std::vector<Change>& changes) {
    std::sort(changes.begin(), changes.end());
    std::vector<MemoryPoint> points;
    double amount = 0;
    for (const auto& [time, change] : changes) {
      amount += change;
      if (points.empty() || points.back().time != time) points.push_back({time, amount});
      points.back().amount = amount;
    }
    return points;
  }

  const Schedule& schedule_;
  const CostModel& costs_;
  const Timeline& timeline_;
  std::vector<std::vector<Change>> changes_;  // [worker]
};

}  // namespace

std::vector<std::vector<MemoryPoint>> memory_over_time(const Schedule& schedule, const CostModel& costs,
                                                       const Timeline& timeline, const std::vector<Message>& messages) {
  return Ledger(schedule, costs, timeline).run(messages);
}

}  // namespace chimera
