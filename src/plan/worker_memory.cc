#include "plan/worker_memory.h"

#include <algorithm>
#include <numeric>

#include "core/reject.h"
#include "passes/unroll.h"
#include "schedule/offload.h"
#include "simulate/cost_table.h"
#include "simulate/summary.h"

// Peaks of memory without a simulation: only the order of ops on a worker counts, so that thousands of candidates and
// choices of stages can be tried. OrderLedger walks over a worker's ops and adds what each takes and frees. Messages
// count as if all buffers were full. worker_peaks() then gives the exact peaks of a simulated step.

namespace chimera {
namespace {

std::optional<Schedule> several_steps_at_work(const Schedule& step) {
  const std::int64_t steps = steps_in_flight(step);
  return steps > 1 ? std::optional(unroll(step, steps)) : std::nullopt;
}

/// Bytes of each worker over the order of its ops. An asynchronous schedule is unrolled until the pipeline is full.
class OrderLedger {
 public:
  OrderLedger(const Schedule& schedule, const StageModel& model)
      : steps_(several_steps_at_work(schedule)),
        schedule_(steps_ ? *steps_ : schedule),
        model_(model),
        scale_(schedule, model.costs) {
    held_.resize(schedule.workers.size());
    const auto holders = stage_groups(schedule.placement);
    for (std::size_t s = 0; s < holders.size(); ++s)
      for (const WorkerId worker : holders[s]) held_[worker.index()].push_back(s);
    find_message_rooms();
  }

  [[nodiscard]] double peak(std::size_t worker, const std::set<StageId>& recompute,
                            const std::set<StageId>& offload) const {
    const std::vector<double> moved = moved_bytes(worker, recompute, offload);
    std::size_t position = 0;
    double amount = held_between_steps(worker) + message_room_[worker] + model_.reserved_bytes;
    double most = amount;
    for (const Op& op : schedule_.workers[worker]) {
      const StageMemory& memory = model_.costs.memory[op.stage.index()];
      const double scale = scale_.bytes(op);
      const ActivationChange change =
          activation_change(op.kind, activation_bytes(memory, schedule_.slices > 1, recompute.contains(op.stage)));
      // Copies of offloaded activations come before and after ops, see moved_bytes().
      amount += moved[2 * position] + change.at_start * scale;
      most = std::max(most, amount + model_.footprints[op.stage.index()].working_set(op.kind));
      amount += change.at_end * scale;
      amount += moved[2 * position++ + 1];
    }
    return most;
  }

  /// A stage on a worker: forwards of a step, and most micro-batches in flight.
  struct Use {
    std::size_t stage = 0;
    double forwards = 0;
    double in_flight = 0;
  };
  [[nodiscard]] std::vector<Use> uses(std::size_t worker) const {
    std::vector<Use> uses(static_cast<std::size_t>(schedule_.stages));
    std::vector<double> now(uses.size(), 0);
    for (const Op& op : schedule_.workers[worker]) {
      Use& use = uses[op.stage.index()];
      double& count = now[op.stage.index()];
      // A stage saves its bytes once for each micro-batch that it has in flight at the peak.
      const double size = scale_.bytes(op);
      if (op.kind == OpKind::Forward) use.forwards += size, use.in_flight = std::max(use.in_flight, count += size);
      if (gives_weight_gradient(op.kind)) count -= size;
    }
    for (std::size_t s = 0; s < uses.size(); ++s) uses[s].stage = s;
    std::erase_if(uses, [](const Use& use) { return use.forwards == 0; });
    return uses;
  }

  /// Returns the worker's stage outside `chosen` that saves the most memory if it frees bytes [S] of each micro-batch.
  [[nodiscard]] std::optional<StageId> largest(std::size_t worker, const std::set<StageId>& chosen,
                                               const std::vector<double>& freed) const {
    std::optional<StageId> found;
    double saved = 0;
    for (const Use& use : uses(worker)) {
      const StageId stage(static_cast<std::int64_t>(use.stage));
      // A stage that saves nothing is never chosen.
      const double more = use.in_flight * freed[use.stage];
      if (chosen.contains(stage) || more <= saved) continue;
      saved = more;
      found = stage;
    }
    return found;
  }

 private:
  /// Returns [2 op]: change of memory by copies before the op and after it.
  [[nodiscard]] std::vector<double> moved_bytes(std::size_t worker, const std::set<StageId>& recompute,
                                                const std::set<StageId>& offload) const {
    const std::vector<Op>& ops = schedule_.workers[worker];
    std::vector<double> moved(2 * ops.size(), 0);
    const Pairs pairs = model_.costs.pair ? Pairs::Together : Pairs::InOrder;
    std::vector<OffloadedForward> copies = offloaded_forwards(ops, offload, pairs);
    if (copies.empty()) return moved;
    std::ranges::sort(copies, {}, &OffloadedForward::forward);
    const std::vector<double> bytes = offloadable_bytes(model_, schedule_.micro_batch_scale, recompute);
    // An offloaded forward's bytes are surely gone when the next offloaded forward has ended (CopyEngines waits for
    // it), and are back from its load on. Later copies give no bound without times.
    for (std::size_t k = 0; k + 1 < copies.size(); ++k) {
      if (copies[k + 1].forward >= copies[k].load) continue;
      const Op& op = ops[copies[k].forward];
      const double part = scale_.bytes(op);
      moved[2 * copies[k + 1].forward + 1] -= bytes[op.stage.index()] * part;
      moved[2 * copies[k].load] += bytes[op.stage.index()] * part;
    }
    return moved;
  }

  [[nodiscard]] double held_between_steps(std::size_t worker) const {
    double amount = 0;
    const double versions = schedule_.updates ? static_cast<double>(schedule_.updates->versions) : 1;
    for (const std::size_t s : held_[worker]) {
      const StageMemory& memory = model_.costs.memory[s];
      // Without delayed updates (PipeDream), later stages need fewer versions, as fewer micro-batches are under way.
      const double kept = schedule_.updates && !schedule_.updates->delay
                              ? std::min(versions, static_cast<double>(schedule_.stages) - static_cast<double>(s))
                              : versions;
      amount += memory.weights * kept + memory.gradients + memory.optimizer;
    }
    return amount;
  }

  /// Reserves memory for the maximum number of messages in flight on each directed pair of workers.
  void find_message_rooms() {
    message_room_.assign(schedule_.workers.size(), 0);
    std::vector<std::set<std::size_t>> peers(schedule_.workers.size());
    std::vector<double> largest(schedule_.workers.size(), 0);
    for (const auto& row : schedule_.placement.worker_of) {
      for (std::size_t s = 1; s < row.size(); ++s) {
        const std::size_t from = row[s - 1].index();
        const std::size_t to = row[s].index();
        if (from == to) continue;
        const double bytes = model_.costs.memory[s].boundary * scale_.most_bytes();
        for (const std::size_t end : {from, to}) {
          peers[end].insert(end == from ? to : from);
          largest[end] = std::max(largest[end], bytes);
        }
      }
    }
    const MessageBuffers& buffers = model_.costs.buffers;
    // Receives posted ahead, the one that is read, and sends that are not yet freed.
    const auto each = static_cast<double>(buffers.receives_ahead + 1 + buffers.sends_behind);
    for (std::size_t w = 0; w < peers.size(); ++w)
      message_room_[w] = static_cast<double>(peers[w].size()) * each * largest[w];
  }

  std::optional<Schedule> steps_;
  const Schedule& schedule_;
  const StageModel& model_;
  OpScale scale_;
  std::vector<std::vector<std::size_t>> held_;  // [worker]: stages, one entry per copy
  std::vector<double> message_room_;            // [worker]
};

/// Returns the maximum of `points` (ascending) within [start, end]; `next` is the first point after `start`.
double most_within(const std::vector<MemoryPoint>& points, std::size_t& next, const TimedOp& time) {
  while (next < points.size() && points[next].time <= time.start) ++next;
  double most = next > 0 ? points[next - 1].amount : 0;
  for (std::size_t i = next; i < points.size() && points[i].time < time.end; ++i)
    most = std::max(most, points[i].amount);
  return most;
}

std::set<StageId> offloaded_by(const StageModel& model) {
  std::set<StageId> offload;
  for (std::size_t s = 0; model.costs.offload && s < model.costs.offload->bytes.size(); ++s)
    if (model.costs.offload->bytes[s] > 0) offload.emplace(static_cast<std::int64_t>(s));
  return offload;
}

/// Adds stages until every worker fits; workers before need no more memory than before. `freed`: [S].
template <class Peak>
std::optional<std::set<StageId>> stages_that_fit(const OrderLedger& ledger, std::size_t workers, double memory_bytes,
                                                 const std::vector<double>& freed, const Peak& peak) {
  std::set<StageId> chosen;
  for (std::size_t w = 0; w < workers;) {
    if (peak(w, chosen) <= memory_bytes) {
      ++w;
      continue;
    }
    const auto stage = ledger.largest(w, chosen, freed);
    if (!stage) return std::nullopt;
    chosen.insert(*stage);
  }
  return chosen;
}

/// Levels of the blocks of a worker's stages, with the bytes that they free and their time.
struct LevelChoice {
  std::vector<BlockLevels> levels = {};  // of each stage so far
  double freed = 0;
  double seconds = 0;
};

/// Leaves only choices of which no other frees as much in less time; they ascend in both.
void keep_best(std::vector<LevelChoice>& choices) {
  std::ranges::stable_sort(choices, [](const LevelChoice& a, const LevelChoice& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.freed > b.freed;
  });
  double most = -1;
  std::erase_if(choices, [&](const LevelChoice& each) { return each.freed <= most || (most = each.freed, false); });
}

/// Returns the best choices for one stage of `blocks` equal blocks.
std::vector<LevelChoice> choices_of(std::int64_t blocks, const std::array<BlockSaving, 4>& savings) {
  std::vector<LevelChoice> choices = {{.levels = {BlockLevels()}}};
  for (const RecomputeLevel level : kRecomputeLevels) {
    const auto& [freed, seconds] = savings[static_cast<std::size_t>(level)];
    for (std::size_t i = choices.size(); freed > 0 && i-- > 0;) {
      for (std::int64_t n = 1; n <= blocks - choices[i].levels[0].all(); ++n) {
        LevelChoice more = choices[i];
        more.levels[0][level] = n;
        more.freed += static_cast<double>(n) * freed;
        more.seconds += static_cast<double>(n) * seconds;
        choices.push_back(std::move(more));
      }
    }
  }
  keep_best(choices);
  return choices;
}

/// Chooses levels so that worker w frees at least needs[w] bytes, and sets needs[w] to what it frees. Returns whether
/// this is possible. Stages of several workers keep at least what an earlier worker chose.
bool choose_levels(const OrderLedger& ledger, const std::array<BlockSaving, 4>& savings,
                   std::vector<StageLayers>& partition, std::vector<double>& needs) {
  const auto freed_by = [&](const BlockLevels& levels) {
    double freed = 0;
    for (const RecomputeLevel level : kRecomputeLevels)
      freed += static_cast<double>(levels[level]) * savings[static_cast<std::size_t>(level)].freed;
    return freed;
  };
  for (StageLayers& stage : partition) stage.levels = {};
  // A candidate that cannot fit costs no choice.
  const double most = std::ranges::max(savings, {}, &BlockSaving::freed).freed;
  for (std::size_t w = 0; w < needs.size(); ++w) {
    double possible = 0;
    for (const auto& use : ledger.uses(w))
      possible += use.in_flight * most * static_cast<double>(partition[use.stage].blocks());
    if (needs[w] > possible) return false;
  }
  for (std::size_t w = 0; w < needs.size(); ++w) {
    if (needs[w] <= 0) continue;
    const auto uses = ledger.uses(w);
    std::vector<LevelChoice> best = {LevelChoice()};
    for (const auto& use : uses) {
      const StageLayers& stage = partition[use.stage];
      std::vector<LevelChoice> joined;
      for (const LevelChoice& own : choices_of(stage.blocks(), savings)) {
        if (own.freed < freed_by(stage.levels)) continue;
        for (LevelChoice all : best) {
          all.levels.push_back(own.levels[0]);
          all.freed += use.in_flight * own.freed;
          all.seconds += use.forwards * own.seconds;
          joined.push_back(std::move(all));
        }
      }
      best = std::move(joined);
      keep_best(best);
    }
    const auto found = std::ranges::find_if(best, [&](const LevelChoice& each) { return each.freed >= needs[w]; });
    if (found == best.end()) return false;
    for (std::size_t i = 0; i < uses.size(); ++i) partition[uses[i].stage].levels = found->levels[i];
    needs[w] = found->freed;
  }
  return true;
}

void require_memory(const StageRequest& request, const StageFlag& flag) {
  if (request.memory_gib > 0) return;
  reject("{} auto needs --memory: the GiB that a worker has", flag.name);
}

[[noreturn]] void refuse_memory(const StageRequest& request, const std::vector<double>& peaks, const char* what) {
  reject("--memory {:g}: a worker needs {:.3g} GiB even if all stages {}; use more stages or smaller micro-batches",
         request.memory_gib, std::ranges::max(peaks) / kGiB, what);
}

}  // namespace

std::vector<double> peaks_by_order(const Schedule& schedule, const StageModel& model,
                                   const std::set<StageId>& recompute,
                                   const std::optional<std::set<StageId>>& offload) {
  const std::set<StageId> moved = offload.value_or(offloaded_by(model));
  OrderLedger ledger(schedule, model);
  std::vector<double> peaks;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) peaks.push_back(ledger.peak(w, recompute, moved));
  return peaks;
}

std::vector<double> worker_peaks(const Schedule& schedule, const StageModel& model, const Timeline& timeline,
                                 const Explanation& explanation) {
  std::vector<double> peaks;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const auto& points = explanation.memory[w];
    double most = peak_memory(explanation, w);
    std::size_t next = 0;
    for (std::size_t i = 0; i < schedule.workers[w].size(); ++i) {
      const Op& op = schedule.workers[w][i];
      const double working_set = model.footprints[op.stage.index()].working_set(op.kind);
      most = std::max(most, most_within(points, next, timeline.workers[w].ops[i]) + working_set);
    }
    peaks.push_back(most + model.reserved_bytes);
  }
  return peaks;
}

std::optional<std::set<StageId>> stages_to_recompute(const Schedule& schedule, const StageModel& model,
                                                     double memory_bytes) {
  OrderLedger ledger(schedule, model);
  std::vector<double> freed;
  for (const StageMemory& memory : model.costs.memory) freed.push_back(memory.activations - memory.boundary);
  const std::set<StageId> offload = offloaded_by(model);
  const auto peak = [&](std::size_t w, const std::set<StageId>& recompute) {
    return ledger.peak(w, recompute, offload);
  };
  return stages_that_fit(ledger, schedule.workers.size(), memory_bytes, freed, peak);
}

std::optional<StageChoice> blocks_to_recompute(const Schedule& schedule, std::vector<StageLayers> partition,
                                               double memory_bytes, const ModelOfPartition& model) {
  for (StageLayers& stage : partition) stage.levels = {};
  const StageModel whole = model(partition);
  const OrderLedger ledger(schedule, whole);
  std::vector<double> peaks = peaks_by_order(schedule, whole, {});
  std::vector<double> needs(peaks.size(), 0);
  while (std::ranges::max(peaks) > memory_bytes) {
    // At least a byte more than the last choice freed: working sets have changed too.
    for (std::size_t w = 0; w < peaks.size(); ++w)
      if (peaks[w] > memory_bytes) needs[w] += std::max(1.0, peaks[w] - memory_bytes);
    if (!choose_levels(ledger, whole.savings, partition, needs)) return std::nullopt;
    peaks = peaks_by_order(schedule, model(partition), {});
  }
  StageChoice choice;
  for (const StageLayers& stage : partition) {
    choice.counts.push_back(stage.levels);
    if (stage.levels.all() > 0) choice.rule = StageRule::Counted;
  }
  return choice.rule == StageRule::None ? StageChoice() : choice;
}

std::optional<StageChoice> blocks_to_offload(const Schedule& schedule, std::vector<StageLayers> partition,
                                             const std::set<StageId>& recompute, double memory_bytes,
                                             const ModelOfPartition& model) {
  set_on_device(partition, {});
  const StageModel whole = model(partition);
  const OrderLedger ledger(schedule, whole);
  const std::vector<double> freed = offloadable_bytes(whole, schedule.micro_batch_scale, recompute);
  const auto stages = stages_that_fit(
      ledger, schedule.workers.size(), memory_bytes, freed,
      [&](std::size_t w, const std::set<StageId>& offload) { return ledger.peak(w, recompute, offload); });
  if (!stages) return std::nullopt;
  for (const StageId s : *stages) {
    // Recomputed stages move only their input. Of the others, the most blocks that can stay, by bisection.
    std::int64_t& stay = partition[s.index()].on_device;
    std::int64_t too_many = recompute.contains(s) ? 1 : partition[s.index()].blocks();
    for (std::int64_t least = 0; too_many - least > 1;) {
      stay = std::midpoint(least, too_many);
      const bool fits = std::ranges::max(peaks_by_order(schedule, model(partition), recompute, stages)) <= memory_bytes;
      (fits ? least : too_many) = stay;
      stay = least;
    }
  }
  if (std::ranges::all_of(partition, [](const StageLayers& stage) { return stage.on_device == 0; }))
    return stage_choice(*stages, schedule.stages);
  StageChoice choice{.rule = StageRule::Counted};
  for (std::size_t s = 0; s < partition.size(); ++s) {
    const bool moves = stages->contains(StageId(static_cast<std::int64_t>(s)));
    const std::int64_t blocks = moves ? partition[s].blocks() - partition[s].on_device : 0;
    choice.counts.push_back(BlockLevels::at(RecomputeLevel::Full, blocks));
  }
  return choice;
}

ChosenStages choose_stages(const StageRequest& request, const Schedule& schedule,
                           const std::vector<StageLayers>& partition, const ModelOfPartition& model) {
  const double memory = request.memory_gib * kGiB;
  ChosenStages chosen;
  std::vector<StageLayers> cut = partition;
  if (request.recompute.counts_blocks()) chosen.blocks = request.recompute;
  chosen.offload_blocks = request.offload;
  chosen.recompute = resolve_stages(request.recompute, kRecomputeFlag, schedule.stages, [&] {
    require_memory(request, kRecomputeFlag);
    if (auto blocks = blocks_to_recompute(schedule, partition, memory, model)) {
      chosen.blocks = std::move(*blocks);
      return std::set<StageId>();
    }
    const StageModel bytes = model(partition);
    if (auto stages = stages_to_recompute(schedule, bytes, memory)) return std::move(*stages);
    refuse_memory(request, peaks_by_order(schedule, bytes, all_stages(schedule.stages)), "recompute");
  });
  set_levels(cut, chosen.blocks);
  chosen.offload = resolve_stages(request.offload, kOffloadFlag, schedule.stages, [&] {
    require_memory(request, kOffloadFlag);
    if (request.recompute.rule == StageRule::Auto)
      throw ConfigError(
          "--offload auto: --recompute auto already makes workers fit in --memory; give only one of them");
    if (auto blocks = blocks_to_offload(schedule, cut, chosen.recompute, memory, model)) {
      chosen.offload_blocks = std::move(*blocks);
      return resolve_stages(chosen.offload_blocks, kOffloadFlag, schedule.stages, {});
    }
    const StageModel bytes = model(cut);
    refuse_memory(request, peaks_by_order(schedule, bytes, chosen.recompute, all_stages(schedule.stages)),
                  "offload their activations");
  });
  return chosen;
}

}  // namespace chimera
