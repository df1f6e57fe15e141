#include <algorithm>
#include <map>
#include <utility>

#include "core/mapped.h"
#include "schedule/weight_versions.h"
#include "simulate/copy_engines.h"
#include "simulate/cost_table.h"
#include "simulate/explain.h"

namespace chimera {
namespace {

/// Time, and change of memory at that time.
using Change = std::pair<double, double>;

// Collects changes of memory at times and sums them at the end, because the ops, messages and copies of a worker are
// not visited in order of time.
class Ledger {
 public:
  Ledger(const Schedule& schedule, const CostModel& costs, const Timeline& timeline)
      : schedule_(schedule), costs_(costs), timeline_(timeline), changes_(schedule.workers.size()) {}

  std::vector<std::vector<MemoryPoint>> run(const std::vector<Message>& messages) {
    if (!costs_.memory.empty()) {
      add_weights();
      for (const Message& message : messages) channels_[{message.from.worker, message.to.worker}].push_back(message);
      for (const auto& [ends, channel] : channels_) {
        add_received(channel);
        add_sent(channel);
      }
    }
    for (std::size_t w = 0; w < changes_.size(); ++w) add_activations(w);
    // Offloaded bytes are away for a while, which is the opposite of holding them.
    if (costs_.offload && !costs_.memory.empty()) add_offloads();
    return mapped(changes_, add_up);
  }

 private:
  const StageMemory& memory(StageId stage) const { return costs_.memory[stage.index()]; }
  bool recomputes(StageId stage) const { return !costs_.recompute.empty() && costs_.recompute[stage.index()] > 0; }

  void hold(std::size_t worker, double from, double until, double amount) {
    changes_[worker].emplace_back(from, amount);
    changes_[worker].emplace_back(until, -amount);
  }

  // A stage always holds one version of its weights. Asynchronous schedules keep older versions for a while.
  void add_weights() {
    const auto holders = stage_groups(schedule_.placement);
    for (std::size_t s = 0; s < holders.size(); ++s) {
      const StageMemory& stage = costs_.memory[s];
      for (const WorkerId worker : holders[s])
        changes_[worker.index()].emplace_back(0, stage.weights + stage.gradients + stage.optimizer);
    }
    for (std::size_t w = 0; w < changes_.size(); ++w) {
      for (const VersionChange& change : version_changes(schedule_, w)) {
        // Booked at the end of the op before the update, not at the end of the update itself.
        changes_[w].emplace_back(timeline_.workers[w].ops[change.after - 1].end,
                                 change.change * memory(change.op.stage).weights);
      }
    }
  }

  const Op& made(const Message& message) const { return schedule_.workers[message.from.worker][message.from.position]; }
  const TimedOp& making(const Message& message) const {
    return timeline_.workers[message.from.worker].ops[message.from.position];
  }

  double bytes(const Message& message) const {
    const Op& op = made(message);
    const StageId boundary = op.kind == OpKind::Forward ? StageId(op.stage.value() + 1) : op.stage;
    return memory(boundary).boundary * scale_.bytes(op);
  }

  /// A received tensor lives until its op uses it: an activation becomes the op's input, which the op's own activations
  /// count; a gradient is needed until the backward ends. Receives that are posted ahead allocate earlier.
  void add_received(const std::vector<Message>& channel) {
    const auto ahead = static_cast<std::size_t>(costs_.buffers.receives_ahead);
    for (std::size_t k = 0; k < channel.size(); ++k) {
      const Message& message = channel[k];
      const TimedOp& used = timeline_.workers[message.to.worker].ops[message.to.position];
      double from = message.arrived;
      if (ahead > 0) from = std::min(from, k < ahead ? 0 : turn(channel[k - ahead]));
      hold(message.to.worker, from, made(message).kind == OpKind::Forward ? used.start : used.end, bytes(message));
    }
  }

  /// Returns when the receiver starts its first op after the message's producer started.
  double turn(const Message& message) const {
    const auto& ops = timeline_.workers[message.to.worker].ops;
    const auto next = std::upper_bound(ops.begin(), ops.end(), making(message).start,
                                       [](double start, const TimedOp& op) { return start < op.start; });
    return next == ops.end() ? message.arrived : next->start;
  }

  /// A sent tensor lives until it has arrived and later messages of its channel have taken its place. The output of a
  /// forward is among its activations unless the stage recomputes, so it does not count twice.
  void add_sent(const std::vector<Message>& channel) {
    std::vector<Message> owned;  // not part of the sender's activations
    for (const Message& message : channel)
      if (made(message).kind != OpKind::Forward || recomputes(made(message).stage)) owned.push_back(message);
    const auto behind = static_cast<std::size_t>(costs_.buffers.sends_behind);
    for (std::size_t k = 0; k < owned.size(); ++k) {
      double until = owned[k].arrived;
      const double last = timeline_.workers[owned[k].from.worker].ops.back().end;
      if (behind > 0) until = std::max(until, k + behind < owned.size() ? making(owned[k + behind]).end : last);
      hold(owned[k].from.worker, making(owned[k]).end, until, bytes(owned[k]));
    }
  }

  /// In stage units, a micro-batch in flight counts as a whole until its weight gradient ends.
  void add_activations(std::size_t worker) {
    const auto& ops = schedule_.workers[worker];
    const bool in_bytes = !costs_.memory.empty();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const TimedOp& time = timeline_.workers[worker].ops[i];
      const double unit = stage_fraction(schedule_);
      const StageId stage = ops[i].stage;
      const ActivationChange change = activation_change(
          ops[i].kind, in_bytes ? activation_bytes(memory(stage), schedule_.slices > 1, recomputes(stage))
                                : ActivationSizes{unit, unit, unit});
      const double scale =
          in_bytes ? scale_.bytes(ops[i]) : schedule_.micro_batch_scale / static_cast<double>(schedule_.slices);
      if (change.at_start != 0) changes_[worker].emplace_back(time.start, change.at_start * scale);
      if (change.at_end != 0) changes_[worker].emplace_back(time.end, change.at_end * scale);
    }
  }

  /// The timeline has no copies. They follow from the times of its ops, so the engines of the simulation run again.
  void add_offloads() {
    const CostTable costs(schedule_, costs_);
    if (costs.offloaded_stages().empty()) return;
    CopyEngines engines(schedule_, costs);
    for (std::size_t w = 0; w < changes_.size(); ++w) {
      const auto& ops = schedule_.workers[w];
      for (std::size_t i = 0; i < ops.size();) {
        const std::size_t end = i + num_concurrent(ops, i, costs.pairs());
        engines.end_ops(w, i, end, timeline_.workers[w].ops[i].end);
        i = end;
      }
      for (const OffloadCopies& copies : engines.copies(w)) {
        const Op& op = ops[copies.forward];
        hold(w, copies.out_end, copies.load, -costs_.offload->bytes[op.stage.index()] * scale_.bytes(op));
      }
    }
  }

  /// Counts frees before allocations at the same time.
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
  OpScale scale_{schedule_, costs_};
  std::vector<std::vector<Change>> changes_;                                      // [worker]
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Message>> channels_;  // by (from, to)
};

}  // namespace

std::vector<std::vector<MemoryPoint>> memory_over_time(const Schedule& schedule, const CostModel& costs,
                                                       const Timeline& timeline, const std::vector<Message>& messages) {
  return Ledger(schedule, costs, timeline).run(messages);
}

}  // namespace chimera
