#include "traces/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "check/check_schedule.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "schedule/dependencies.h"
#include "simulate/summary.h"

namespace chimera {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxKnownOps = 1'000'000;
constexpr double kFarApart = 3600;  // Seconds between the traces of one run, at most

/// Returns whether the ranges of ops begin before they wait, and those of messages are known.
bool marks_waits(const RankTrace& rank) { return !rank.on_device && rank.own_worker < 0; }

bool is_op(const TraceRange& range) { return range.kind == RangeKind::Op; }

std::set<std::int64_t> stages_of(const RankTrace& rank) {
  std::set<std::int64_t> stages;
  for (const TraceRange& range : rank.ranges)
    if (is_op(range)) stages.insert(range.op.stage.value());
  return stages;
}

/// Returns whether the ranks of the group hold each of these stages once.
bool hold_once(const std::vector<RankTrace*>& group, const std::set<std::int64_t>& stages) {
  std::multiset<std::int64_t> held;
  for (const RankTrace* rank : group) held.merge(stages_of(*rank));
  return std::ranges::equal(held, stages);
}

/// Throws ConfigError unless the traces, sorted by rank, are of different ranks of one run.
void require_one_run(const std::vector<RankTrace>& ranks) {
  const RankTrace& first = ranks.front();
  for (const RankTrace& rank : ranks) {
    if (rank.world_size != first.world_size) {
      reject("{}: a run of {} ranks, but {} is of a run of {} ranks; give the files of one run", rank.file,
             rank.world_size, first.file, first.world_size);
    }
    const double apart = std::abs(static_cast<double>(rank.origin - first.origin)) * kNanosecond;
    if (apart > kFarApart)
      reject("{}: begins {:.0f} s apart from {}; give the files of one run", rank.file, apart, first.file);
  }
  if (const auto twice = std::ranges::adjacent_find(ranks, {}, &RankTrace::rank); twice != ranks.end())
    reject("{}: rank {}, like {}; give each rank's file once", std::next(twice)->file, twice->rank, twice->file);
}

/// Chooses the ranks of one pipeline, in the order of its workers. If there are several pipelines, takes the one of the
/// lowest rank.
std::vector<RankTrace*> choose_pipeline(std::vector<RankTrace>& ranks) {
  std::ranges::stable_sort(ranks, {}, &RankTrace::rank);
  require_one_run(ranks);
  const RankTrace& first = ranks.front();
  std::set<std::int64_t> stages;
  std::vector<std::vector<std::int64_t>> groups;
  for (const RankTrace& rank : ranks) {
    stages.merge(stages_of(rank));
    groups.insert(groups.end(), rank.groups.begin(), rank.groups.end());
  }
  std::int64_t missing = 0;
  while (stages.contains(missing)) ++missing;
  if (missing < *stages.rbegin()) {
    reject("{}: no trace has ops of stage {}; give the file of its rank, too ({} of {} ranks)", first.file, missing,
           ranks.size(), first.world_size);
  }
  // The group of a pipeline may be missing if the file lists no groups.
  if (first.groups.empty() || std::ssize(ranks) == first.world_size) groups.push_back(mapped(ranks, &RankTrace::rank));
  for (const std::vector<std::int64_t>& members : groups) {
    std::vector<RankTrace*> chosen;
    for (const std::int64_t member : members) {
      const auto found = std::ranges::lower_bound(ranks, member, {}, &RankTrace::rank);
      if (found != ranks.end() && found->rank == member) chosen.push_back(&*found);
    }
    // Not all files of this group were given.
    if (chosen.size() != members.size()) continue;
    // torch's GPipe names no stages.
    const bool is_gpipe = stages.contains(-1) && members.size() > 1;
    if (is_gpipe || first.own_worker >= 0 || hold_once(chosen, stages)) return chosen;
  }
  reject("{}: these {} ranks are no whole pipeline of {} stages; give the files of all {} ranks", first.file,
         ranks.size(), stages.size(), first.world_size);
}

/// The ops of a worker: indices of ranges, step after step, and then the number of all ranges.
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
      windows.ranges.push_back(rank.ranges.size());
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
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      name_stages(w);
      windows_.push_back(windows_of(*workers_[w]));
      trace_.on_device = trace_.on_device || workers_[w]->on_device;
      trace_.ranks.push_back(workers_[w]->rank);
    }
    make_schedule();
    table_.emplace(trace_.schedule);
    end_waits();
    for (std::size_t w = 0; w < workers_.size(); ++w)
      shift_times(w, static_cast<double>(workers_[w]->origin - workers_[0]->origin) * kNanosecond);
    align_steps();
    align_clocks();
    for (std::size_t k = first_step_; k < end_step_; ++k) add_step(k);
    finish();
    return std::move(trace_);
  }

 private:
  // torch's GPipe names the micro-batches, but not the only stage of a rank, which is the rank of the pipeline.
  void name_stages(std::size_t w) {
    for (TraceRange& range : workers_[w]->ranges)
      if (range.op.stage.value() < 0) range.op.stage = StageId(static_cast<std::int64_t>(w));
  }

  void make_schedule() {
    Schedule& schedule = trace_.schedule;
    schedule.name = "own order";
    std::size_t ops = 0;
    std::int64_t replicas = 1;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      auto& list = schedule.workers.emplace_back();
      for (std::size_t i = 0; i < windows_[w].length; ++i) {
        const Op& op = list.emplace_back(workers_[w]->ranges[windows_[w].at(0, i)].op);
        schedule.stages = std::max(schedule.stages, op.stage.value() + 1);
        schedule.micro_batches = std::max(schedule.micro_batches, op.micro_batch.value() + 1);
        replicas = std::max<std::int64_t>(replicas, op.replica.value() + 1);
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
    for (std::size_t w = 0; w < workers_.size(); ++w)
      for (const Op& op : schedule.workers[w])
        schedule.placement.worker_of[op.replica.index()][op.stage.index()] = WorkerId(static_cast<std::int64_t>(w));
    if (const auto violations = check(schedule); !violations.empty())
      reject("{}: the traces hold no complete schedule: {}", file, violations.front().message);
    const auto orders = without_pairs(schedule).workers;
    for (Schedule& known : known_schedules(std::ssize(workers_), schedule.micro_batches,
                                           std::max<std::int64_t>(1, schedule.stages / std::ssize(workers_)))) {
      if (known.placement != schedule.placement || without_pairs(known).workers != orders) continue;
      known.workers = schedule.workers;  // With the pairs that ran
      schedule = std::move(known);
      trace_.is_known = true;
      break;
    }
  }

  /// Returns the range of an op in a step.
  [[nodiscard]] const TraceRange& range(std::size_t step, OpIndex op) const {
    const std::size_t w = table_->worker(op);
    return workers_[w]->ranges[windows_[w].at(step, op - table_->first(w))];
  }
  /// Returns the ranges between the op at `position`, at least 1, and the op before it. If `position` is the number of
  /// ops, these are the ranges after the last op.
  [[nodiscard]] std::span<const TraceRange> ranges_before(std::size_t w, std::size_t step, std::size_t position) const {
    const std::size_t begin = windows_[w].at(step, position - 1) + 1;
    return std::span(workers_[w]->ranges).subspan(begin, windows_[w].at(step, position) - begin);
  }
  [[nodiscard]] Place place_of(OpIndex op) const {
    return {table_->worker(op), op - table_->first(table_->worker(op))};
  }
  [[nodiscard]] OpIndex index_of(const Place& place) const {
    return table_->first(place.worker) + static_cast<OpIndex>(place.position);
  }

  /// Returns the op of another worker whose message the op needs, or kNoOp.
  [[nodiscard]] OpIndex sender_of(std::size_t w, const Op& op) const {
    const OpIndex input = table_->inputs(op)[0];
    return input == kNoOp || table_->worker(input) == w ? kNoOp : input;
  }

  // Only ops that need a message of another worker wait for it; the first operator after the wait starts their work.
  void end_waits() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (!marks_waits(*workers_[w])) continue;
      for (TraceRange& range : workers_[w]->ranges) {
        if (!is_op(range) || sender_of(w, range.op) == kNoOp) continue;
        const double start = range.received > 0 ? range.received : range.first_operator;
        range.work_start = std::clamp(start, range.start, range.end);
      }
    }
  }

  void shift_times(std::size_t w, double seconds) {
    for (TraceRange& range : workers_[w]->ranges)
      for (double* time : {&range.start, &range.end, &range.first_operator, &range.work_start, &range.work_end})
        *time += seconds;
  }

  /// Returns the start of the worker's first op, without its wait: other workers may still run the step before.
  [[nodiscard]] double start_of(std::size_t w, std::size_t step) const {
    return range(step, table_->first(w)).work_start;
  }
  /// Returns the start of the op, with its wait if it is known.
  [[nodiscard]] double begin_of(std::size_t w, const TraceRange& op) const {
    return marks_waits(*workers_[w]) ? op.start : op.work_start;
  }

  /// Drops steps that some ranks have not recorded: those before the last rank's first step.
  void align_steps() {
    // Ranks start to record at different times. A rank whose second step is closer to the latest first step than its
    // own first one has recorded a step more.
    if (std::ranges::adjacent_find(windows_, std::not_equal_to(), &OpWindows::steps) != windows_.end()) {
      double latest = -kUnbounded;
      for (std::size_t w = 0; w < workers_.size(); ++w) latest = std::max(latest, start_of(w, 0));
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        OpWindows& windows = windows_[w];
        while (windows.steps > 1 && std::abs(start_of(w, 1) - latest) < std::abs(start_of(w, 0) - latest)) {
          windows.begin += windows.length;
          --windows.steps;
        }
      }
    }
    num_steps_ = std::ranges::min(windows_, {}, &OpWindows::steps).steps;
    if (chosen_.first < 1 || chosen_.last < chosen_.first || chosen_.first > static_cast<std::int64_t>(num_steps_))
      reject("--steps {}-{}: the traces have steps 1 to {}", chosen_.first, chosen_.last, num_steps_);
    first_step_ = static_cast<std::size_t>(chosen_.first) - 1;
    end_step_ = std::min(num_steps_, static_cast<std::size_t>(chosen_.last));
  }

  /// A message is never received before it was sent. Both directions bound the difference of two clocks; no difference
  /// is assumed if the bounds allow it.
  void align_clocks() {
    // [sender, receiver]: how late the receiver's clock can be. It starts its work after the message was sent, in every
    // step.
    std::map<std::pair<std::size_t, std::size_t>, double> most;
    for (OpIndex op = 0; op < table_->size(); ++op) {
      const OpIndex sender = sender_of(table_->worker(op), table_->op(op));
      if (sender == kNoOp) continue;
      double& bound = most.try_emplace({table_->worker(sender), table_->worker(op)}, kUnbounded).first->second;
      for (std::size_t k = 0; k < num_steps_; ++k)
        bound = std::min(bound, range(k, op).work_start - range(k, sender).work_end);
    }
    // Breadth first from worker 0, whose clock all others follow.
    std::vector<std::size_t> queue = {0};
    late_ = {{0, 0.0}};
    double largest = 0;
    for (std::size_t next = 0; next < queue.size(); ++next) {
      const std::size_t from = queue[next];
      for (const auto& [hop, bound] : most) {
        const std::size_t to = hop.second;
        if (hop.first != from || late_.contains(to)) continue;
        // The clock of `to` is late by a value from `low` to `high`. Gradients go where activations come from.
        const double high = late_[from] + bound;
        const double low = late_[from] - most.at({to, from});
        late_[to] = low > 0 || high < 0 ? (low + high) / 2 : 0;
        largest = std::max(largest, std::abs(late_[to]));
        queue.push_back(to);
      }
    }
    for (const auto& [w, late] : late_) shift_times(w, -late);
    if (largest > 1e-6)
      trace_.notes.push_back(fmt::format("clocks of the ranks differ by up to {:.6g} s; messages align them", largest));
  }

  /// Returns the start of the first op of a step.
  [[nodiscard]] double start_of_step(std::size_t step) const {
    double start = kUnbounded;
    for (std::size_t w = 0; w < workers_.size(); ++w) start = std::min(start, start_of(w, step));
    return start;
  }

  /// Returns the end of the last optimizer step of all ranks, or `end` if that is later.
  [[nodiscard]] double end_of_optimizers(double end) const {
    for (const RankTrace* rank : workers_) {
      for (const TraceRange& other : rank->ranges)
        if (other.kind == RangeKind::Optimizer) end = std::max(end, other.end);
    }
    return end;
  }

  void add_step(std::size_t k) {
    TraceStep step;
    step.timeline = empty_timeline(trace_.schedule);
    trace_.times.resize(static_cast<std::size_t>(trace_.schedule.stages));
    const double start = start_of_step(k);
    double end = start;
    for (OpIndex op = 0; op < table_->size(); ++op) {
      const TraceRange& at = range(k, op);
      const auto [w, position] = place_of(op);
      step.timeline.workers[w].ops[position] = {at.work_start - start, at.work_end - start};
      end = std::max(end, at.work_end);
      trace_.times[at.op.stage.index()][static_cast<std::size_t>(at.op.kind)].push_back(at.work_end - at.work_start);
      if (at.weight_products >= 0) weight_shares_.push_back(at.weight_products);
    }
    step.pipeline = end - start;
    const double next = k + 1 < num_steps_ ? start_of_step(k + 1) : end_of_optimizers(end);
    step.seconds = next - start;
    for (std::size_t w = 0; w < workers_.size(); ++w) add_parts(w, k, start, next, step);
    step.costs = costs_of(k, step);
    step.timeline.makespan = step.pipeline;
    count_peaks(trace_.schedule, step.timeline);
    summarize_timeline(step.timeline);
    step.timeline.step_ends = {step.timeline.makespan};
    step.timeline.period = step.seconds;
    trace_.steps.push_back(std::move(step));
    if (k + 1 == num_steps_) return;
    // Whether a rank starts the next step, or waits in it, before all have ended the ops of this one.
    double begin = kUnbounded;
    for (std::size_t w = 0; w < workers_.size(); ++w)
      begin = std::min(begin, begin_of(w, range(k + 1, table_->first(w))));
    overlaps_ += begin < end ? 1 : -1;
  }

  void add_parts(std::size_t w, std::size_t k, double start, double next, TraceStep& step) {
    WorkerParts& parts = step.parts.emplace_back();
    double cursor = start;
    for (OpIndex op = table_->first(w); op < table_->first(w + 1); ++op) {
      const TraceRange& at = range(k, op);
      const Place place = place_of(op);
      const bool is_first = place.position == 0;
      double gap = std::max(0.0, at.work_start - cursor);
      if (!is_first)
        for (const TraceRange& other : ranges_before(w, k, place.position)) gap -= add_other(w, other, parts, gap);
      double wait = 0;
      if (const OpIndex sender = sender_of(w, at.op); sender != kNoOp) {
        const double sent = range(k, sender).work_end;
        wait = std::min(gap, marks_waits(*workers_[w]) ? at.work_start - at.start : gap);
        const double late = std::clamp(sent - (at.work_start - wait), 0.0, wait);
        step.messages.push_back(
            {place_of(sender), place, sent - start, (wait > 0 ? std::max(sent, at.work_start) : sent) - start});
        step.awaited.push_back(late > 0);
        if (!is_first) {
          parts.late += late;
          parts.transit += wait - late;
          if (late > 0) step.late.push_back({place, place_of(sender), late});
        }
      }
      (is_first ? parts.ends : parts.host) += is_first ? gap : gap - wait;
      const double work = at.work_end - at.work_start;
      parts.ops[static_cast<std::size_t>(at.op.kind)] += work;
      parts.inside += std::max(0.0, work - at.covered);
      cursor = std::max(cursor, at.work_end);
    }
    // The rest of the step, after its last op: sums, the optimizer, and loading data. In a V, a worker may begin the
    // next step while others still run this one.
    double rest = next - cursor;
    for (const TraceRange& other : ranges_before(w, k, windows_[w].length)) {
      if (other.start >= next) break;
      const double taken = add_other(w, other, parts, rest);
      if (other.kind == RangeKind::GradientSum && taken > 0) step.pipeline = std::max(step.pipeline, other.end - start);
      rest -= taken;
    }
    parts.ends += rest;
  }

  /// Adds a range that is no op to its part, at most `most` seconds of it. Returns these seconds.
  double add_other(std::size_t w, const TraceRange& other, WorkerParts& parts, double most) const {
    if (workers_[w]->on_device) return 0;  // Ranges of the host do not occupy a device
    const double seconds = std::clamp(other.end - other.start, 0.0, std::max(0.0, most));
    const std::array all = {&parts.messages, &parts.messages, &parts.sums, &parts.gathers,
                            &parts.optimizer};  // By kind
    *all[static_cast<std::size_t>(other.kind)] += seconds;
    return seconds;
  }

  /// Times of a step that belong to the costs of its ops, and of messages.
  struct AddedTimes {
    std::vector<double> sends;                // [op]
    std::vector<double> before;               // [op]: time of the worker before it, and its receives
    std::vector<std::vector<double>> copies;  // [boundary]: starts of messages
  };

  [[nodiscard]] TraceStepCosts costs_of(std::size_t k, const TraceStep& step) {
    const auto stages = static_cast<std::size_t>(trace_.schedule.stages);
    TraceStepCosts costs;
    AddedTimes added{std::vector<double>(table_->size()), std::vector<double>(table_->size()),
                     std::vector<std::vector<double>>(stages - 1)};
    // Unknown for the last step, which has no step after it.
    const bool is_known = k + 1 < num_steps_ || end_step_ - first_step_ == 1;
    const double usual = is_known ? std::max(0.0, step.seconds - step.pipeline) : -1;
    for (std::size_t w = 0; w < workers_.size(); ++w) costs.between.push_back(add_gaps(w, k, added).value_or(usual));
    // Others may wait for their sends; the worker that ends last has nothing to wait for.
    const auto end_of = [](const WorkerTimeline& worker) { return worker.ops.back().end; };
    const auto last = std::ranges::max_element(step.timeline.workers, {}, end_of);
    // The optimizer takes this time between steps. A worker with more than this also waits.
    const double most = costs.between[static_cast<std::size_t>(last - step.timeline.workers.begin())];
    for (double& between : costs.between) between = std::min(between, most);
    costs.latency = latency_of(k, step, added);
    costs.copies = mapped(added.copies, mean);
    std::vector<std::array<std::vector<double>, kOpKinds>> seconds(stages);
    std::vector<std::vector<double>> launches(stages);
    std::array<std::vector<double>, kOpKinds> host;
    for (OpIndex op = 0; op < table_->size(); ++op) {
      const TraceRange& at = range(k, op);
      const double work = at.work_end - at.work_start;
      const std::size_t stage = at.op.stage.index();
      const auto kind = static_cast<std::size_t>(at.op.kind);
      if (at.op.kind == OpKind::Backward)
        launches[stage].push_back(at.weight_groups * std::max(0.0, at.first_operator - at.work_start));
      seconds[stage][kind].push_back(work + added.before[op] + added.sends[op]);
      host[kind].push_back(trace_.on_device ? 0 : std::max(0.0, work - at.covered));
    }
    std::ranges::transform(host, costs.host.begin(), mean);
    for (const auto& kinds : seconds) std::ranges::transform(kinds, costs.ops.emplace_back().begin(), mean);
    costs.launches = mapped(launches, mean);
    return costs;
  }

  /// Adds the gaps between the worker's ops. Returns the seconds from its last op to the next step, if they are known.
  std::optional<double> add_gaps(std::size_t w, std::size_t k, AddedTimes& added) const {
    const bool marks = marks_waits(*workers_[w]);
    const OpIndex end = table_->first(w + 1);
    for (OpIndex op = table_->first(w) + 1; op <= end; ++op) {
      double others = 0;
      for (const TraceRange& other : ranges_before(w, k, op - table_->first(w)))
        if (marks) others += add_apart(other, added);
      if (op == end && k + 1 == num_steps_) break;
      const TraceRange& at = op < end ? range(k, op) : range(k + 1, table_->first(w));
      // The gap before another op has a wait of unknown length.
      if (!marks && sender_of(w, at.op) != kNoOp) continue;
      const double gap = std::max(0.0, begin_of(w, at) - range(k, op - 1).work_end - others);
      if (op == end) return gap;
      added.before[op] += gap;
    }
    return std::nullopt;
  }

  /// Adds a range that has costs of its own to them. Returns its seconds; 0 for other ranges.
  double add_apart(const TraceRange& other, AddedTimes& added) const {
    const double seconds = other.end - other.start;
    if (other.kind == RangeKind::GradientSum && trace_.data_parallel > 1) return seconds;
    const auto [stage, micro_batch] = std::pair{other.op.stage, other.op.micro_batch};
    if (other.kind != RangeKind::Message || stage.value() >= trace_.schedule.stages ||
        micro_batch.value() >= trace_.schedule.micro_batches)
      return 0;
    const bool forward = other.op.kind == OpKind::Forward;
    const OpIndex op = forward ? table_->find(OpKind::Forward, stage, micro_batch, 0)
                               : table_->find_input_gradient(stage, micro_batch, 0);
    // Sends name the sender's stage and receives the receiver's; boundary b is between stages b and b + 1.
    const std::size_t boundary = stage.index() - (forward != other.sends ? 1 : 0);
    if (op == kNoOp || boundary >= added.copies.size()) return 0;
    (other.sends ? added.sends : added.before)[op] += seconds;
    added.copies[boundary].push_back(seconds);
    return seconds;
  }

  /// Returns the mean time of awaited messages on their way. Adds the times of handling the others.
  double latency_of(std::size_t k, const TraceStep& step, AddedTimes& added) {
    std::vector<double> rest;
    for (std::size_t m = 0; m < step.messages.size(); ++m) {
      const auto& [from, to, sent, arrived] = step.messages[m];
      double& before = added.before[index_of(to)];
      const TraceRange& at = range(k, index_of(to));
      const double left = sent + added.sends[index_of(from)];
      const double wait = at.work_start - begin_of(to.worker, at);
      // The receiver really waited for this message, so the rest is the time of the message on its way.
      if (step.awaited[m] || left > arrived - wait)
        rest.push_back(arrived - left - before);
      else if (to.position > 0 && late_[from.worker] == late_[to.worker])  // Else it may not have left yet
        before += wait;  // Handling a message that has left before takes the worker's time
    }
    // The mean may be negative, because aligned clocks are not exact.
    return std::max(0.0, mean(rest));
  }

  void finish() {
    trace_.sums.resize(trace_.times.size());
    for (const RankTrace* rank : workers_) {
      for (const TraceRange& other : rank->ranges)
        if (other.kind == RangeKind::GradientSum && other.op.stage.index() < trace_.sums.size())
          trace_.sums[other.op.stage.index()].push_back(other.end - other.start);
    }
    if (!weight_shares_.empty()) trace_.weight_share = median(weight_shares_);
    trace_.steps_overlap = overlaps_ > 0;
    // The last step ends with the last range; the time that follows it is estimated from the other steps.
    std::vector<double> between;
    for (std::size_t k = 0; k + 1 < trace_.steps.size(); ++k)
      between.push_back(trace_.steps[k].seconds - trace_.steps[k].pipeline);
    if (TraceStep& last = trace_.steps.back(); end_step_ == num_steps_ && !between.empty()) {
      const double added = last.pipeline + median(between) - last.seconds;
      last.seconds += added;
      for (WorkerParts& parts : last.parts) parts.ends += added;
    }
  }

  const std::vector<RankTrace*>& workers_;  // Their times are on one clock after align_clocks()
  TraceSteps chosen_;
  Trace trace_;
  std::vector<OpWindows> windows_;
  std::optional<OpTable> table_;
  std::map<std::size_t, double> late_;  // [worker]: how late its clock was
  std::vector<double> weight_shares_;
  int overlaps_ = 0;  // Steps that overlap the next one, minus the other steps
  std::size_t first_step_ = 0;
  std::size_t end_step_ = 0;
  std::size_t num_steps_ = 0;
};

/// Returns the sum of the median times of the rank's ops by stage and kind.
double usual_seconds(const RankTrace& rank) {
  std::map<std::pair<std::int64_t, OpKind>, std::vector<double>> times;
  for (const TraceRange& range : rank.ranges)
    if (is_op(range)) times[{range.op.stage.value(), range.op.kind}].push_back(range.covered);
  double sum = 0;
  for (const auto& [op, seconds] : times) sum += median(seconds);
  return sum;
}

/// Compares other ranks with the worker of the pipeline that runs the same stages.
void compare_peers(const std::vector<RankTrace>& ranks, const std::vector<RankTrace*>& workers, Trace& trace) {
  for (const RankTrace& rank : ranks) {
    const auto own =
        std::ranges::find(workers, stages_of(rank), [](const RankTrace* worker) { return stages_of(*worker); });
    if (std::ranges::count(workers, &rank) > 0 || own == workers.end()) continue;
    if (const double seconds = usual_seconds(**own); seconds > 0)
      trace.peers.emplace_back(rank.rank, usual_seconds(rank) / seconds);
  }
}

/// Returns whether a name comes first in natural order, which has `iteration_9` before `iteration_10`.
struct NaturalOrder {
  bool operator()(const std::string& one, const std::string& other) const {
    return strverscmp(one.c_str(), other.c_str()) < 0;
  }
};

}  // namespace

std::vector<Schedule> known_schedules(std::int64_t workers, std::int64_t micro_batches, std::int64_t chunks) {
  if (4 * workers * chunks * micro_batches > kMaxKnownOps) return {};
  const auto values_of = [&](const SupportedAxis& axis, const PipelineShape& shape) {
    std::set<std::int64_t> values = {axis.usual};
    if (axis.axis == Axis::Chunks) values = {1, chunks};
    if (axis.axis == Axis::Waves) values = {1, std::max<std::int64_t>(1, chunks / 2)};
    if (axis.axis == Axis::Pipelines || axis.axis == Axis::Order)
      for (const std::int64_t value : axis.planned(shape)) values.insert(value);
    return std::vector(values.begin(), values.end());
  };
  std::vector<Schedule> schedules;
  for (const Generator& generator : generators()) {
    if (!generator.synchronous) continue;
    const PipelineShape usual = default_shape(generator, workers, micro_batches);
    for (const PipelineShape& shape : possible_shapes(generator, usual, values_of)) {
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
    std::map<std::string, std::set<std::string>, NaturalOrder> folders;
    for (const auto& entry :
         fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, error))
      if (entry.is_regular_file(error) && is_trace_file(entry.path()))
        folders[entry.path().parent_path()].insert(entry.path());
    if (!folders.empty()) files.insert(files.end(), folders.rbegin()->second.begin(), folders.rbegin()->second.end());
  }
  return files;
}

Trace join_ranks(std::vector<RankTrace> ranks, const TraceSteps& steps) {
  const auto workers = choose_pipeline(ranks);
  const auto pipelines = std::max<std::int64_t>(1, ranks.front().world_size / std::ssize(workers));
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
  for (const std::string& file : files)
    for (RankTrace& rank : read_trace_file(file)) ranks.push_back(std::move(rank));
  return join_ranks(std::move(ranks), steps);
}

}  // namespace chimera
