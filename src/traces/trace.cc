#include "traces/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "check/check_schedule.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "schedule/dependencies.h"
#include "simulate/summary.h"

namespace chimera {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr std::int64_t kMaxKnownOps = 1'000'000;
constexpr double kFarApart = 3600;  // Seconds between the traces of one run, at most

/// Returns whether the ranges of ops begin before they wait, and those of messages are known.
bool marks_waits(const RankTrace& rank) { return !rank.on_device && rank.own_worker < 0; }

bool is_op(const TraceRange& range) { return range.kind == RangeKind::Op; }

std::set<std::int64_t> stages_of(const RankTrace& rank) {
  std::set<std::int64_t> stages;
  for (const TraceRange& range : rank.ranges) {
    if (is_op(range)) stages.insert(range.op.stage.value());
  }
  return stages;
}

/// Returns whether the ranks of the group are a whole pipeline of one replica.
bool is_pipeline(const std::vector<const RankTrace*>& group, std::size_t num_stages) {
  std::size_t count = 0;
  std::set<std::int64_t> stages;
  for (const RankTrace* rank : group) {
    const auto own = stages_of(*rank);
    count += own.size();
    stages.insert(own.begin(), own.end());
  }
  return count == num_stages && stages.size() == num_stages && *stages.rbegin() + 1 == std::ssize(stages);
}

void require_one_run(const std::vector<RankTrace>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankTrace& first = ranks.front();
    const RankTrace& rank = ranks[i];
    if (rank.world_size != first.world_size) {
      reject("{}: a run of {} ranks, but {} is of a run of {} ranks; give the files of one run", rank.file,
             rank.world_size, first.file, first.world_size);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (ranks[j].rank != rank.rank) continue;
      reject("{}: rank {}, like {}; give each rank's file once", rank.file, rank.rank, ranks[j].file);
    }
    const double apart = std::abs(static_cast<double>(rank.origin - first.origin)) * kNanosecond;
    if (apart > kFarApart) {
      reject("{}: begins {:.0f} s apart from {}; give the files of one run", rank.file, apart, first.file);
    }
  }
}

/// Chooses the ranks of one pipeline, in the order of its workers. If there are several pipelines, takes the one of the
/// lowest rank.
std::vector<RankTrace*> choose_pipeline(std::vector<RankTrace>& ranks, std::int64_t& pipelines) {
  require_one_run(ranks);
  std::ranges::sort(ranks, {}, &RankTrace::rank);
  std::set<std::int64_t> stages;
  for (const RankTrace& rank : ranks) stages.merge(stages_of(rank));
  // torch's GPipe names no stages.
  const bool unnamed = stages.contains(-1);
  std::vector<std::vector<std::int64_t>> groups;
  std::vector<std::int64_t> all;
  for (const RankTrace& rank : ranks) {
    groups.insert(groups.end(), rank.groups.begin(), rank.groups.end());
    all.push_back(rank.rank);
  }
  // The group of a pipeline may be missing if the file lists no groups.
  if (ranks.front().groups.empty() || std::ssize(all) == ranks.front().world_size) groups.push_back(all);
  for (std::vector<std::int64_t>& members : groups) {
    std::vector<const RankTrace*> group;
    std::vector<RankTrace*> chosen;
    for (const std::int64_t member : members) {
      const auto found = std::ranges::lower_bound(ranks, member, {}, &RankTrace::rank);
      if (found == ranks.end() || found->rank != member) break;
      group.push_back(&*found);
      chosen.push_back(&*found);
    }
    // Not all files of this group were given.
    if (chosen.size() != members.size() || chosen.empty()) continue;
    const bool is_own = chosen.front()->own_worker >= 0;
    if (!is_own && (unnamed ? members.size() < 2 : !is_pipeline(group, stages.size()))) continue;
    pipelines = std::max<std::int64_t>(1, ranks.front().world_size / std::ssize(chosen));
    return chosen;
  }
  for (std::int64_t stage = 0; stage <= *stages.rbegin(); ++stage) {
    if (!stages.contains(stage)) {
      reject("{}: no trace has ops of stage {}; give the file of its rank, too ({} of {} ranks)", ranks.front().file,
             stage, ranks.size(), ranks.front().world_size);
    }
  }
  reject("{}: these {} ranks are no whole pipeline of {} stages; give the files of all {} ranks", ranks.front().file,
         ranks.size(), stages.size(), ranks.front().world_size);
}

/// The ops of a worker: indices of ranges, step after step.
struct OpWindows {
  std::vector<std::size_t> ranges;
  std::size_t begin = 0;   // Index of the first complete step
  std::size_t length = 0;  // Number of ops of a step
  std::size_t steps = 0;
  [[nodiscard]] std::size_t at(std::size_t step, std::size_t op) const { return ranges[begin + step * length + op]; }
};

using OpKey = std::array<std::int64_t, 4>;
OpKey key_of(const Op& op) {
  return {op.stage.value(), static_cast<std::int64_t>(op.kind), op.micro_batch.value(), op.replica.value()};
}

/// Returns whether a step can begin with the op at `begin`: each backward follows its forward, each weight gradient its
/// input gradient, and micro-batches of a stage start in ascending order if `ascending`.
bool can_begin(const RankTrace& rank, const OpWindows& windows, std::size_t begin, bool ascending) {
  std::set<OpKey> seen;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> newest;  // Stage and replica to micro-batch
  for (std::size_t i = begin; i < begin + windows.length; ++i) {
    Op op = rank.ranges[windows.ranges[i]].op;
    seen.insert(key_of(op));
    if (op.kind == OpKind::Forward) {
      auto& last = newest.try_emplace({op.stage.value(), op.replica.value()}, -1).first->second;
      if (ascending && op.micro_batch.value() < last) return false;
      last = op.micro_batch.value();
      continue;
    }
    op.kind = op.kind == OpKind::BackwardWeight ? OpKind::BackwardInput : OpKind::Forward;
    if (!seen.contains(key_of(op))) return false;
  }
  return true;
}

OpWindows windows_of(const RankTrace& rank) {
  OpWindows windows;
  std::set<OpKey> distinct;
  for (std::size_t i = 0; i < rank.ranges.size(); ++i) {
    if (!is_op(rank.ranges[i])) continue;
    windows.ranges.push_back(i);
    distinct.insert(key_of(rank.ranges[i].op));
  }
  // Each op occurs once in a step.
  windows.length = distinct.size();
  const std::size_t last = std::min(windows.length, windows.ranges.size() - windows.length + 1);
  // A window that begins in the middle of a step may be consistent too. Steps usually start their micro-batches in
  // ascending order, so such windows are preferred.
  for (const bool ascending : {true, false}) {
    for (std::size_t begin = 0; begin < last; ++begin) {
      if (!can_begin(rank, windows, begin, ascending)) continue;
      windows.begin = begin;
      windows.steps = (windows.ranges.size() - begin) / windows.length;
      for (std::size_t i = begin + windows.length; i < windows.ranges.size(); ++i) {
        const Op& op = rank.ranges[windows.ranges[i]].op;
        const Op& before = rank.ranges[windows.ranges[i - windows.length]].op;
        if (key_of(op) == key_of(before)) continue;
        reject(
            "{}: the order of ops changes from step to step: rank {} runs {} where it ran {} a step "
            "before; profile steps of one schedule, without evaluation",
            rank.file, rank.rank, to_text(op), to_text(before));
      }
      return windows;
    }
  }
  reject(
      "{}: no complete step of rank {}: a backward without its forward; profile two steps or "
      "more",
      rank.file, rank.rank);
}

class TraceBuilder {
 public:
  TraceBuilder(const std::vector<RankTrace*>& workers, std::int64_t data_parallel, const TraceSteps& chosen)
      : workers_(workers), chosen_(chosen) {
    trace_.data_parallel = data_parallel;
  }

  Trace build() {
    name_stages();
    for (const RankTrace* rank : workers_) windows_.push_back(windows_of(*rank));
    origins_.resize(workers_.size());
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      origins_[w] = static_cast<double>(workers_[w]->origin - workers_[0]->origin) * kNanosecond;
      trace_.on_device = trace_.on_device || workers_[w]->on_device;
      trace_.ranks.push_back(workers_[w]->rank);
    }
    make_schedule();
    const OpTable table(trace_.schedule);
    table_ = &table;
    end_waits();
    align_steps();
    align_clocks();
    collect();
    return std::move(trace_);
  }

 private:
  // torch's GPipe names the micro-batches, but not the only stage of a rank, which is the rank of the pipeline.
  void name_stages() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (TraceRange& range : workers_[w]->ranges) {
        if (range.op.stage.value() < 0) range.op.stage = StageId(static_cast<std::int64_t>(w));
      }
    }
  }

  [[nodiscard]] TraceRange& range(std::size_t w, std::size_t step, std::size_t op) const {
    return workers_[w]->ranges[windows_[w].at(step, op)];
  }

  void make_schedule() {
    Schedule& schedule = trace_.schedule;
    schedule.name = "own order";
    std::size_t ops = 0;
    std::int64_t replicas = 1;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      auto& list = schedule.workers.emplace_back();
      for (std::size_t i = 0; i < windows_[w].length; ++i) {
        list.push_back(range(w, 0, i).op);
        schedule.stages = std::max(schedule.stages, list.back().stage.value() + 1);
        schedule.micro_batches = std::max(schedule.micro_batches, list.back().micro_batch.value() + 1);
        replicas = std::max<std::int64_t>(replicas, list.back().replica.value() + 1);
      }
      ops += list.size();
    }
    const std::string& file = workers_.front()->file;
    // A damaged trace could name stage 10^6, for which tables would be made.
    if (static_cast<std::size_t>(std::max({schedule.stages, schedule.micro_batches, replicas})) > ops)
      reject("{}: the ops name {} stages and {} micro-batches, but a step has {} ops", file, schedule.stages,
             schedule.micro_batches, ops);
    schedule.placement.worker_of.assign(static_cast<std::size_t>(replicas),
                                        std::vector<WorkerId>(static_cast<std::size_t>(schedule.stages)));
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (const Op& op : schedule.workers[w])
        schedule.placement.worker_of[op.replica.index()][op.stage.index()] = WorkerId(static_cast<std::int64_t>(w));
    }
    if (const auto violations = check(schedule); !violations.empty())
      reject("{}: the traces hold no complete schedule: {}", file, violations.front().message);
    for (Schedule& known : known_schedules(std::ssize(workers_), schedule.micro_batches,
                                           std::max<std::int64_t>(1, schedule.stages / std::ssize(workers_)))) {
      if (!has_same_orders(known, schedule)) continue;
      known.workers = schedule.workers;  // With the pairs that ran
      schedule = std::move(known);
      trace_.is_known = true;
      break;
    }
  }

  static bool has_same_orders(const Schedule& one, const Schedule& other) {
    return one.placement == other.placement && without_pairs(one).workers == without_pairs(other).workers;
  }

  /// Returns the op of another worker whose message the op needs, or kNoOp.
  [[nodiscard]] OpIndex sender_of(std::size_t w, const Op& op) const {
    const OpIndex input = table_->inputs(op)[0];
    return input == kNoOp || table_->worker(input) == w ? kNoOp : input;
  }

  // Only ops that need a message of another worker wait for it; the first operator after the wait starts their work.
  void end_waits() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w]->on_device || workers_[w]->own_worker >= 0) continue;
      for (TraceRange& range : workers_[w]->ranges) {
        if (!is_op(range) || sender_of(w, range.op) == kNoOp) continue;
        const double start = range.received > 0 ? range.received : range.first_operator;
        range.work_start = std::clamp(start, range.start, range.end);
      }
    }
  }

  /// Returns the start of the worker's first op, without its wait: other workers may still run the step before.
  [[nodiscard]] double start_of(std::size_t w, std::size_t step) { return origins_[w] + range(w, step, 0).work_start; }

  /// Drops steps that some ranks have not recorded: those before the last rank's first step.
  void align_steps() {
    // Ranks start to record at different times. A rank whose second step is closer to the latest first step than its
    // own first one has recorded a step more.
    const auto [fewest, most] = std::ranges::minmax(windows_, {}, &OpWindows::steps);
    std::size_t steps = fewest.steps;
    if (fewest.steps != most.steps) {
      double latest = -std::numeric_limits<double>::infinity();
      for (std::size_t w = 0; w < workers_.size(); ++w) latest = std::max(latest, start_of(w, 0));
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        OpWindows& windows = windows_[w];
        while (windows.steps > 1 && std::abs(start_of(w, 1) - latest) < std::abs(start_of(w, 0) - latest)) {
          windows.begin += windows.length;
          --windows.steps;
        }
        steps = std::min(steps, windows.steps);
      }
    }
    if (chosen_.first < 1 || chosen_.last < chosen_.first || chosen_.first > static_cast<std::int64_t>(steps))
      reject("--steps {}-{}: the traces have steps 1 to {}", chosen_.first, chosen_.last, steps);
    first_step_ = static_cast<std::size_t>(chosen_.first) - 1;
    end_step_ = std::min(steps, static_cast<std::size_t>(chosen_.last));
    num_steps_ = steps;
  }

  /// A message is never received before it was sent. Both directions bound the difference of two clocks; no difference
  /// is assumed if the bounds allow it.
  void align_clocks() {
    constexpr double kUnbounded = std::numeric_limits<double>::infinity();
    const std::size_t count = workers_.size();
    std::map<std::pair<std::size_t, std::size_t>, double> most;  // Receiver's clock is at most this late
    for (std::size_t w = 0; w < count; ++w) {
      for (std::size_t i = 0; i < windows_[w].length; ++i) {
        const OpIndex sender = sender_of(w, trace_.schedule.workers[w][i]);
        if (sender == kNoOp) continue;
        const std::size_t from = table_->worker(sender);
        // How late the receiver's clock can be: it starts its work after the message was sent, in every step.
        double& bound = most.try_emplace({from, w}, kUnbounded).first->second;
        for (std::size_t k = 0; k < num_steps_; ++k) {
          const double sent = origins_[from] + range(from, k, sender - table_->first(from)).work_end;
          bound = std::min(bound, origins_[w] + range(w, k, i).work_start - sent);
        }
      }
    }
    // Breadth first from worker 0, whose clock all others follow.
    std::vector<bool> reached(count, false);
    std::vector<std::size_t> queue = {0};
    reached[0] = true;
    double largest = 0;
    for (std::size_t next = 0; next < queue.size(); ++next) {
      const std::size_t from = queue[next];
      for (std::size_t to = 0; to < count; ++to) {
        if (reached[to] || !most.contains({from, to})) continue;
        const double high = most[{from, to}] + shift(from);
        // Messages in the other direction bound the difference from below.
        const double low = most.contains({to, from}) ? shift(from) - most[{to, from}] : -kUnbounded;
        // The clock of `to` is late by a value from `low` to `high`.
        const double late = low > 0 || high < 0 ? (std::isfinite(low) ? (low + high) / 2 : high) : 0;
        shifts_[to] = late;
        largest = std::max(largest, std::abs(late));
        reached[to] = true;
        queue.push_back(to);
      }
    }
    for (const auto& [w, late] : shifts_) origins_[w] -= late;
    if (largest > 1e-6)
      trace_.notes.push_back(fmt::format("clocks of the ranks differ by up to {:.6g} s; messages align them", largest));
  }
  [[nodiscard]] double shift(std::size_t w) const {
    const auto found = shifts_.find(w);
    return found == shifts_.end() ? 0 : found->second;
  }

  void collect() {
    const auto stages = static_cast<std::size_t>(trace_.schedule.stages);
    trace_.times.resize(stages);
    trace_.sums.resize(stages);
    std::vector<double> weight_shares;
    for (std::size_t k = first_step_; k < end_step_; ++k) {
      add_step(k);
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        for (std::size_t i = 0; i < windows_[w].length; ++i) {
          const TraceRange& at = range(w, k, i);
          trace_.times[at.op.stage.index()][static_cast<std::size_t>(at.op.kind)].push_back(at.work_end -
                                                                                            at.work_start);
          if (at.weight_products >= 0) weight_shares.push_back(at.weight_products);
        }
      }
    }
    if (!weight_shares.empty()) trace_.weight_share = median(weight_shares);
    for (const RankTrace* rank : workers_) {
      for (const TraceRange& other : rank->ranges) {
        if (other.kind == RangeKind::GradientSum && other.op.stage.index() < stages)
          trace_.sums[other.op.stage.index()].push_back(other.end - other.start);
      }
    }
    // The last step ends with the last range; the time that follows it is estimated from the other steps.
    std::vector<double> between;
    std::ptrdiff_t overlaps = 0;
    for (std::size_t k = first_step_; k < std::min(end_step_, num_steps_ - 1); ++k)
      overlaps += overlaps_next(k) ? 1 : -1;
    trace_.steps_overlap = overlaps > 0;
    for (std::size_t k = 0; k + 1 < trace_.steps.size(); ++k)
      between.push_back(trace_.steps[k].seconds - trace_.steps[k].pipeline);
    if (TraceStep& last = trace_.steps.back(); end_step_ == num_steps_ && !between.empty()) {
      const double added = last.pipeline + median(between) - last.seconds;
      last.seconds += added;
      for (WorkerParts& parts : last.parts) parts.ends += added;
    }
  }

  void add_step(std::size_t k) {
    TraceStep step;
    const Schedule& schedule = trace_.schedule;
    step.timeline = empty_timeline(schedule);
    double start = start_of(0, k);
    double end = start;
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      start = std::min(start, start_of(w, k));
      if (k + 1 < num_steps_) next = std::min(next, start_of(w, k + 1));
      for (std::size_t i = 0; i < windows_[w].length; ++i) end = std::max(end, origins_[w] + range(w, k, i).work_end);
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (std::size_t i = 0; i < windows_[w].length; ++i) {
        const TraceRange& at = range(w, k, i);
        step.timeline.workers[w].ops[i] = {origins_[w] + at.work_start - start, origins_[w] + at.work_end - start};
      }
    }
    step.pipeline = end - start;
    if (!std::isfinite(next)) next = std::max(end, end_of_optimizers(end));
    step.seconds = next - start;
    for (std::size_t w = 0; w < workers_.size(); ++w) add_parts(w, k, start, next, step);
    step.costs = costs_of(k, step);
    step.timeline.makespan = step.pipeline;
    count_peaks(schedule, step.timeline);
    summarize_timeline(step.timeline);
    step.timeline.step_ends = {step.timeline.makespan};
    step.timeline.period = step.seconds;
    trace_.steps.push_back(std::move(step));
  }

  /// Returns whether a rank starts the next step, or waits in it, before all have ended the ops of this one.
  [[nodiscard]] bool overlaps_next(std::size_t k) const {
    double next = std::numeric_limits<double>::infinity();
    double end = -next;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const TraceRange& first = range(w, k + 1, 0);
      next = std::min(next, origins_[w] + (marks_waits(*workers_[w]) ? first.start : first.work_start));
      end = std::max(end, origins_[w] + range(w, k, windows_[w].length - 1).work_end);
    }
    return next < end;
  }

  /// Returns the end of the last optimizer step of all ranks that starts at most kFarApart before `after`, or later;
  /// `after` if there is none.
  [[nodiscard]] double end_of_optimizers(double after) const {
    double end = after;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      for (const TraceRange& other : workers_[w]->ranges) {
        if (other.kind == RangeKind::Optimizer && origins_[w] + other.start >= after - kFarApart)
          end = std::max(end, origins_[w] + other.end);
      }
    }
    return end;
  }

  void add_parts(std::size_t w, std::size_t k, double start, double next, TraceStep& step) {
    WorkerParts& parts = step.parts.emplace_back();
    const RankTrace& rank = *workers_[w];
    const bool blocks = !rank.on_device;  // Ranges of the host do not occupy a device
    double cursor = start;
    std::size_t after = windows_[w].at(k, 0);
    for (std::size_t i = 0; i < windows_[w].length; ++i) {
      const std::size_t index = windows_[w].at(k, i);
      const TraceRange& at = rank.ranges[index];
      const auto kind = static_cast<std::size_t>(at.op.kind);
      double gap = std::max(0.0, origins_[w] + at.work_start - cursor);
      for (; after < index; ++after) {
        if (blocks) gap -= add_other(rank.ranges[after], parts, gap);
      }
      const OpIndex sender = sender_of(w, at.op);
      double wait = 0;
      if (sender != kNoOp) {
        const std::size_t from = table_->worker(sender);
        const double sent = origins_[from] + range(from, k, sender - table_->first(from)).work_end;
        wait = std::min(gap, marks_waits(rank) ? at.work_start - at.start : gap);
        const double arrived = origins_[w] + at.work_start;
        const double late = std::clamp(sent - (arrived - wait), 0.0, wait);
        step.messages.push_back({{from, sender - table_->first(from)},
                                 {w, i},
                                 sent - start,
                                 std::max(sent, wait > 0 ? arrived : sent) - start});
        step.awaited.push_back(wait > 0 && late > 0);
        if (i > 0) {
          parts.late += late;
          parts.transit += wait - late;
          if (late > 0) step.late.push_back({{w, i}, {from, sender - table_->first(from)}, late});
        }
      }
      (i == 0 ? parts.ends : parts.host) += i == 0 ? gap : gap - wait;
      parts.ops[kind] += at.work_end - at.work_start;
      parts.inside += std::max(
          0.0, std::min(at.work_end - at.work_start, at.work_end - at.start - at.covered - (at.work_start - at.start)));
      cursor = std::max(cursor, origins_[w] + at.work_end);
    }
    // The rest of the step, after its last op: sums, the optimizer, and loading data. In a V, a worker may begin the
    // next step while others still run this one.
    double rest = k + 1 < num_steps_ ? next - cursor : std::max(0.0, next - cursor);
    for (; after < rank.ranges.size() && origins_[w] + rank.ranges[after].start < next; ++after) {
      if (!blocks || is_op(rank.ranges[after])) continue;
      const double taken = add_other(rank.ranges[after], parts, rest);
      if (rank.ranges[after].kind == RangeKind::GradientSum && taken > 0)
        step.pipeline = std::max(step.pipeline, origins_[w] + rank.ranges[after].end - start);
      rest -= taken;
    }
    parts.ends += rest;
  }

  [[nodiscard]] TraceStepCosts costs_of(std::size_t k, const TraceStep& step) {
    const auto stages = static_cast<std::size_t>(trace_.schedule.stages);
    const auto micro_batches = static_cast<std::size_t>(trace_.schedule.micro_batches);
    TraceStepCosts costs;
    costs.ops.resize(stages);
    std::vector<double> sends(table_->size(), 0);
    std::vector<double> before(table_->size(), 0);        // Time of the worker before an op, and its receives
    std::vector<std::vector<double>> copies(stages - 1);  // Starts of messages, by boundary
    /// Returns the seconds of a range that has costs of its own.
    const auto apart = [&](const TraceRange& other) {
      const double seconds = other.end - other.start;
      if (other.kind == RangeKind::GradientSum && trace_.data_parallel > 1) return seconds;
      const auto [stage, micro_batch] = std::pair{other.op.stage, other.op.micro_batch};
      if (other.kind != RangeKind::Message || stage.index() >= stages || micro_batch.index() >= micro_batches)
        return 0.0;
      const bool forward = other.op.kind == OpKind::Forward;
      const OpIndex op = forward ? table_->find(OpKind::Forward, stage, micro_batch, 0)
                                 : table_->find_input_gradient(stage, micro_batch, 0);
      // Sends name the sender's stage and receives the receiver's; boundary b is between stages b and b + 1.
      const std::size_t boundary = stage.index() - (forward != other.sends ? 1 : 0);
      if (op == kNoOp || boundary >= copies.size()) return 0.0;
      (other.sends ? sends : before)[op] += seconds;
      copies[boundary].push_back(seconds);
      return seconds;
    };
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const RankTrace& rank = *workers_[w];
      const bool is_last = k + 1 == num_steps_;
      const bool unknown = is_last && end_step_ - first_step_ > 1;
      costs.between.push_back(unknown ? -1 : std::max(0.0, step.seconds - step.pipeline));
      const std::size_t first = windows_[w].at(k, 0);
      const std::size_t end = is_last ? rank.ranges.size() : windows_[w].at(k + 1, 0) + 1;
      double others = 0;
      OpIndex op = table_->first(w);
      for (std::size_t i = first + 1, last = first; i < end; ++i) {
        const TraceRange& at = rank.ranges[i];
        if (!is_op(at)) {
          if (marks_waits(rank)) others += apart(at);
          continue;
        }
        const double begin = marks_waits(rank) ? at.start : at.work_start;
        const double gap = std::max(0.0, begin - rank.ranges[last].work_end - others);
        const bool knows = marks_waits(rank) || sender_of(w, at.op) == kNoOp;
        if (++op == table_->first(w) + windows_[w].length) {
          if (!is_last && knows) costs.between.back() = gap;
          break;
        }
        if (knows) before[op] += gap;
        last = i;
        others = 0;
      }
    }
    // Others may wait for their sends; the worker that ends last has nothing to wait for.
    const auto end_of = [](const WorkerTimeline& worker) { return worker.ops.back().end; };
    const auto last = std::ranges::max_element(step.timeline.workers, {}, end_of);
    // The optimizer takes this time between steps. A worker with more than this also waits.
    const double most = costs.between[static_cast<std::size_t>(last - step.timeline.workers.begin())];
    for (double& between : costs.between) between = std::min(between, most);
    std::vector<double> rest;
    for (std::size_t m = 0; m < step.messages.size(); ++m) {
      const auto& [from, to, sent, arrived] = step.messages[m];
      const OpIndex receiver = table_->first(to.worker) + static_cast<OpIndex>(to.position);
      const TraceRange& at = range(to.worker, k, to.position);
      const double left = sent + sends[table_->first(from.worker) + from.position];
      const double wait = marks_waits(*workers_[to.worker]) ? at.work_start - at.start : 0;
      // The receiver really waited for this message, so the rest is the time of the message on its way.
      if (step.awaited[m] || left > arrived - wait) {
        rest.push_back(arrived - left - before[receiver]);
      } else if (to.position > 0 && shift(from.worker) == shift(to.worker)) {  // Else it may not have left yet
        before[receiver] += wait;  // Handling a message that has left before takes the worker's time
      }
    }
    // The mean may be negative, because aligned clocks are not exact.
    costs.latency = std::max(0.0, mean(rest));
    for (const auto& starts : copies) costs.copies.push_back(mean(starts));
    std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> seconds;  // By stage and kind
    std::vector<std::vector<double>> launches(stages);
    std::array<std::vector<double>, kOpKinds> host;
    for (OpIndex i = 0; i < table_->size(); ++i) {
      const std::size_t w = table_->worker(i);
      const TraceRange& at = range(w, k, i - table_->first(w));
      const double work = at.work_end - at.work_start;
      if (at.op.kind == OpKind::Backward)
        launches[at.op.stage.index()].push_back(at.weight_groups * std::max(0.0, at.first_operator - at.work_start));
      seconds[{at.op.stage.index(), static_cast<std::size_t>(at.op.kind)}].push_back(work + before[i] + sends[i]);
      host[static_cast<std::size_t>(at.op.kind)].push_back(trace_.on_device ? 0 : std::max(0.0, work - at.covered));
    }
    std::ranges::transform(host, costs.host.begin(), mean);
    for (const auto& [place, values] : seconds) costs.ops[place.first][place.second] = mean(values);
    for (const auto& of_stage : launches) costs.launches.push_back(mean(of_stage));
    return costs;
  }

  /// Adds a range that is no op to its part, at most `most` seconds of it. Returns these seconds.
  static double add_other(const TraceRange& other, WorkerParts& parts, double most) {
    if (is_op(other)) return 0;
    const double seconds = std::clamp(other.end - other.start, 0.0, std::max(0.0, most));
    const std::array all = {&parts.messages, &parts.messages, &parts.sums, &parts.gathers,
                            &parts.optimizer};  // By kind
    *all[static_cast<std::size_t>(other.kind)] += seconds;
    return seconds;
  }

  const std::vector<RankTrace*>& workers_;
  TraceSteps chosen_;
  Trace trace_;
  std::vector<OpWindows> windows_;
  std::vector<double> origins_;  // [worker]: to add to its times
  std::map<std::size_t, double> shifts_;
  const OpTable* table_ = nullptr;
  std::size_t first_step_ = 0;
  std::size_t end_step_ = 0;
  std::size_t num_steps_ = 0;
};

/// Compares other ranks with the worker of the pipeline that runs the same stages.
void compare_peers(const std::vector<RankTrace>& ranks, const std::vector<RankTrace*>& workers, Trace& trace) {
  const auto times_of = [](const RankTrace& rank) {
    std::map<std::pair<std::int64_t, OpKind>, std::vector<double>> times;
    for (const TraceRange& range : rank.ranges) {
      if (is_op(range)) times[{range.op.stage.value(), range.op.kind}].push_back(range.covered);
    }
    return times;
  };
  for (const RankTrace& rank : ranks) {
    if (std::ranges::find(trace.ranks, rank.rank) != trace.ranks.end()) continue;
    const auto stages = stages_of(rank);
    for (const RankTrace* worker : workers) {
      if (stages_of(*worker) != stages) continue;
      double own = 0;
      double other = 0;
      for (const auto& [op, times] : times_of(*worker)) own += median(times);
      for (const auto& [op, times] : times_of(rank)) other += median(times);
      if (own > 0) trace.peers.emplace_back(rank.rank, other / own);
      break;
    }
  }
}

/// Orders `iteration_9` before `iteration_10`.
struct NaturalOrder {
  bool operator()(const std::string& one, const std::string& other) const {
    return strverscmp(one.c_str(), other.c_str()) < 0;
  }
};

std::vector<PipelineShape> shapes_of(const Generator& generator, std::int64_t workers, std::int64_t micro_batches,
                                     std::int64_t chunks) {
  const auto values_of = [&](const SupportedAxis& axis, const PipelineShape& shape) {
    std::set<std::int64_t> values = {axis.usual};
    if (axis.axis == Axis::Chunks) values = {1, chunks};
    if (axis.axis == Axis::Waves) values = {1, std::max<std::int64_t>(1, chunks / 2)};
    if (axis.axis == Axis::Pipelines || axis.axis == Axis::Order) {
      for (const std::int64_t value : axis.planned(shape)) values.insert(value);
    }
    return std::vector(values.begin(), values.end());
  };
  return possible_shapes(generator, default_shape(generator, workers, micro_batches), values_of);
}

}  // namespace

std::vector<Schedule> known_schedules(std::int64_t workers, std::int64_t micro_batches, std::int64_t chunks) {
  std::vector<Schedule> schedules;
  for (const Generator& generator : generators()) {
    if (!generator.synchronous) continue;
    for (const PipelineShape& shape : shapes_of(generator, workers, micro_batches, chunks)) {
      if (4 * workers * chunks * micro_batches > kMaxKnownOps) continue;
      Schedule schedule = generator.generate(shape);
      if (schedule.micro_batch_scale == 1 && schedule.slices == 1) schedules.push_back(std::move(schedule));
    }
  }
  return schedules;
}

std::vector<std::string> find_trace_files(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::map<std::string, std::vector<std::string>, NaturalOrder> folders;
    for (const auto& entry :
         fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, error)) {
      if (entry.is_regular_file(error) && is_trace_file(entry.path()))
        folders[entry.path().parent_path()].push_back(entry.path());
    }
    if (folders.empty()) continue;
    auto& last = folders.rbegin()->second;
    std::ranges::sort(last);
    files.insert(files.end(), last.begin(), last.end());
  }
  return files;
}

Trace join_ranks(std::vector<RankTrace> ranks, const TraceSteps& steps) {
  std::int64_t pipelines = 1;
  const auto workers = choose_pipeline(ranks, pipelines);
  Trace trace = TraceBuilder(workers, pipelines, steps).build();
  compare_peers(ranks, workers, trace);
  if (ranks.size() > workers.size()) {
    trace.notes.push_back(fmt::format("{} ranks are traced; the times are those of the pipeline of ranks {}",
                                      ranks.size(), fmt::join(trace.ranks, ", ")));
  }
  return trace;
}

Trace read_traces(const std::vector<std::string>& paths, const TraceSteps& steps) {
  const auto files = find_trace_files(paths);
  if (files.empty()) reject("{}: no trace files (.json or .json.gz of torch.profiler)", fmt::join(paths, ", "));
  std::vector<RankTrace> ranks;
  for (const std::string& file : files) {
    for (RankTrace& rank : read_trace_file(file)) ranks.push_back(std::move(rank));
  }
  return join_ranks(std::move(ranks), steps);
}

}  // namespace chimera
