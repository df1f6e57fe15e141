// ScheduleCheck::run() goes from the outside to the inside: counts and placement, ids of ops, missing and doubled ops,
// cycles of waits, pairs, and weight versions (VersionCheck). Each step relies on the steps before it: tables are
// indexed by ids that exist, and versions are followed through a schedule that is complete and can run.

#include "check/check_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "check/violation.h"
#include "check/wait_cycle.h"
#include "schedule/dependencies.h"
#include "schedule/weight_versions.h"

namespace chimera {
namespace {

// Both ops of a pair start together. So neither may need the other, and an op can be in one pair only.
/// Returns why the op and the next op do not form a valid pair; nothing if they do.
std::optional<std::string> pair_error(const Schedule& schedule, const std::vector<Op>& ops, std::size_t position) {
  if (schedule.updates) return "paired; an asynchronous schedule has no pairs";
  if (schedule.slices > 1) return "paired; a schedule with slices has no pairs";
  if (ops[position].kind != OpKind::Forward) return "paired; a pair begins with a forward";
  if (position + 1 == ops.size()) return "paired, but no op follows it on its worker";
  const Op& second = ops[position + 1];
  if (!gives_input_gradient(second.kind))
    return fmt::format("paired with {}; the second op of a pair is B or I", to_text(second));
  if (second.micro_batch == ops[position].micro_batch)
    return fmt::format("paired with {}, which needs it: it is of the same micro-batch", to_text(second));
  return std::nullopt;
}

/// Returns the op, or the pair that it runs in: `0F1&0B0`.
std::string describe(const Schedule& schedule, Place place, Pairs pairs) {
  const auto& ops = schedule.workers[place.worker];
  if (place.position > 0 && num_concurrent(ops, place.position - 1, pairs) > 1) --place.position;
  // Whichever op of a pair waits, the message names the pair.
  const std::string text = to_text(ops[place.position], schedule.slices);
  return num_concurrent(ops, place.position, pairs) > 1 ? text + "&" + to_text(ops[place.position + 1], schedule.slices)
                                                        : text;
}

std::string describe(const Schedule& schedule, const std::vector<Wait>& cycle, Pairs pairs) {
  std::string message =
      fmt::format("deadlock{}, a cycle of {} wait{}: ", pairs == Pairs::Together ? " if pairs run together" : "",
                  cycle.size(), cycle.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const auto& [op, input] = cycle[i];
    message += fmt::format("{}worker {} cannot run {} (its op {}) before {} (op {} of worker {})", i == 0 ? "" : "; ",
                           op.worker, describe(schedule, op, pairs), op.position, describe(schedule, input, pairs),
                           input.position, input.worker);
  }
  return message;
}

constexpr std::size_t kMaxReplicas = std::numeric_limits<std::int16_t>::max();  // Range of ReplicaId

// A wrong row does not end the check: other rows and the ops are reported, too.
void check_row(std::size_t r, const std::vector<WorkerId>& row, std::int64_t stages, std::size_t num_workers,
               Findings& findings) {
  const auto workers = static_cast<std::int64_t>(num_workers);
  if (static_cast<std::int64_t>(row.size()) != stages)
    findings.add_text(ViolationKind::BadPlacement, "replica {} places {} stages; the schedule has {}", r, row.size(),
                      stages);
  for (std::size_t s = 0; s < row.size(); ++s) {
    if (row[s].value() >= 0 && row[s].value() < workers) continue;
    findings.add_text(ViolationKind::BadPlacement, "replica {} places stage {} on worker {}; workers are 0 to {}", r, s,
                      row[s].value(), workers - 1);
  }
}

/// A stage of a replica, with its own updates.
struct Copy {
  std::int32_t made = 0;      // Updates so far: the newest version
  std::int64_t in_group = 0;  // Weight gradients since the last update
};

// One pass over each worker's list, since a stage's versions change only on its own worker.
class VersionCheck {
 public:
  VersionCheck(const Schedule& schedule, Findings& findings)
      : schedule_(schedule),
        findings_(findings),
        copies_(schedule.placement.num_replicas() * static_cast<std::size_t>(schedule.stages)),
        group_of_(static_cast<std::size_t>(schedule.micro_batches)),
        forward_version_(static_cast<std::size_t>(schedule.stages * schedule.micro_batches)) {
    for (const auto& of_replica : micro_batches_of_replicas(schedule)) {
      for (std::size_t rank = 0; rank < of_replica.size(); ++rank) {
        // Micro-batches count within their replica, because each replica makes updates of its own.
        group_of_[of_replica[rank].index()] = static_cast<std::int64_t>(rank) / updates_.micro_batches;
      }
    }
  }

  void run() {
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w)
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) check_op({w, i});
    if (!findings_.empty()) return;  // The versions that are kept are not known
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) check_kept(w);
  }

 private:
  void check_op(Place place) {
    const Op& op = schedule_.workers[place.worker][place.position];
    Copy& held = copies_[op.replica.index() * static_cast<std::size_t>(schedule_.stages) + op.stage.index()];
    const std::int32_t version = op.weight_version;
    if (version < 0 || version > held.made)
      findings_.add_at(schedule_, ViolationKind::MissingVersion, place,
                       "uses weight version {} of its stage, which has had {} updates", version, held.made);
    std::int32_t& forward =
        forward_version_[op.stage.index() * static_cast<std::size_t>(schedule_.micro_batches) + op.micro_batch.index()];
    if (op.kind == OpKind::Forward) {
      forward = version;
      if (version != version_for(op, held))
        findings_.add_at(schedule_, ViolationKind::WrongVersion, place,
                         "uses weight version {}, not {} as the schedule's updates say", version,
                         version_for(op, held));
    } else if (forward != version) {
      findings_.add_at(schedule_, ViolationKind::MixedVersions, place, "uses weight version {}, its forward used {}",
                       version, forward);
    }
    if (gives_weight_gradient(op.kind)) accumulate(op, place, held);
  }

  std::int64_t version_for(const Op& forward, const Copy& held) const {
    if (!updates_.delay) return held.made;
    return std::max<std::int64_t>(0, group_of_[forward.micro_batch.index()] - *updates_.delay);
  }

  void accumulate(const Op& op, Place place, Copy& held) {
    const std::int64_t group = group_of_[op.micro_batch.index()];
    // The gradients of group t make version t + 1, so exactly t updates must have been made.
    if (group != held.made)
      findings_.add_at(schedule_, ViolationKind::UpdateOrder, place,
                       "belongs to update {} of its stage, but update {} is still to be made", group + 1,
                       held.made + 1);
    if (++held.in_group < updates_.micro_batches) return;
    held.in_group = 0;
    ++held.made;
  }

  // Between an update and the old version's last use, the worker holds both.
  void check_kept(std::size_t worker) {
    std::map<std::pair<ReplicaId, StageId>, std::int64_t> older;  // Versions that are kept beside the newest
    for (const VersionChange& change : version_changes(schedule_, worker)) {
      std::int64_t& kept = older[{change.op.replica, change.op.stage}];
      kept += change.change;
      if (change.change < 0 || 1 + kept <= updates_.versions) continue;
      findings_.add_at(schedule_, ViolationKind::TooManyVersions, {worker, change.after - 1},
                       "makes weight version {} of its stage while older ones are needed: {} kept, {} allowed",
                       change.op.weight_version, 1 + kept, updates_.versions);
    }
  }

  const Schedule& schedule_;
  const AsynchronousUpdates& updates_ = *schedule_.updates;
  Findings& findings_;
  std::vector<Copy> copies_;                   // [replica][stage]
  std::vector<std::int64_t> group_of_;         // [micro-batch]: updates of its replica before its own
  std::vector<std::int32_t> forward_version_;  // [stage][micro-batch]
};

/// Adds a shortest cycle of ops that wait for each other, if any. Requires ops in range.
void check_acyclic(const Schedule& schedule, Pairs pairs, Findings& findings) {
  // Runs the schedule. Ops that were not visited wait for each other, or for ops that are missing; a missing op is no
  // cycle.
  const OpTable table(schedule);
  const auto visited = visit_in_dependency_order(
      table, [](OpIndex) {}, pairs);
  const auto cycle = shortest_wait_cycle(table, visited, pairs);
  if (cycle.empty()) return;
  std::vector<Place> places;
  for (const Wait& wait : cycle) places.insert(places.end(), {wait.op, wait.input});
  const auto kind = pairs == Pairs::Together ? ViolationKind::BadPair : ViolationKind::Cycle;
  findings.add(kind, std::move(places), [&] { return describe(schedule, cycle, pairs); });
}

void check_pairs(const Schedule& schedule, Findings& findings) {
  bool all_right = true;
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    const auto& ops = schedule.workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].paired) continue;
      const auto fault = pair_error(schedule, ops, i);
      if (!fault) continue;
      all_right = false;
      findings.add_at(schedule, ViolationKind::BadPair, {w, i}, "{}", *fault);
    }
  }
  if (all_right) check_acyclic(schedule, Pairs::Together, findings);
}

void check_versions(const Schedule& schedule, Findings& findings) {
  if (schedule.updates->micro_batches < 1 || schedule.updates->versions < 1) {
    findings.add_text(ViolationKind::OutOfRange, "{} micro-batches an update and {} weight versions; both are positive",
                      schedule.updates->micro_batches, schedule.updates->versions);
    return;
  }
  VersionCheck(schedule, findings).run();
}

/// Kinds of ops seen at one (stage, micro-batch), one bit each.
using KindSet = std::uint8_t;
constexpr KindSet bit(OpKind kind) { return static_cast<KindSet>(1U << static_cast<unsigned>(kind)); }
// The two sets that are complete.
constexpr KindSet kWhole = bit(OpKind::Forward) | bit(OpKind::Backward);
constexpr KindSet kSplit = bit(OpKind::Forward) | bit(OpKind::BackwardInput) | bit(OpKind::BackwardWeight);

// Ids are checked first: all later checks index tables with them. Cycles are searched only if all ids are in range,
// pairs and versions only if nothing else is wrong, because they assume a complete schedule.
class ScheduleCheck {
 public:
  explicit ScheduleCheck(const Schedule& schedule) : schedule_(schedule) {}

  std::vector<Violation> run() {
    if (!check_placement(schedule_.placement, schedule_.stages, schedule_.micro_batches, schedule_.slices,
                         schedule_.workers.size(), findings_))
      return findings_.take();
    // The counts are right, but rows of the placement may be wrong.
    placed_ = findings_.empty();
    if (schedule_.groups < 1 || std::ssize(schedule_.workers) % schedule_.groups != 0)
      findings_.add_text(ViolationKind::BadPlacement, "{} groups do not divide {} workers", schedule_.groups,
                         schedule_.workers.size());
    if (schedule_.slices > 1 && schedule_.updates)
      findings_.add_text(ViolationKind::OutOfRange, "{} slices in an asynchronous schedule, which has none",
                         schedule_.slices);
    check_ops();
    check_complete();
    if (all_in_range_) check_acyclic(schedule_, Pairs::InOrder, findings_);
    if (findings_.empty() && has_pairs(schedule_)) check_pairs(schedule_, findings_);
    if (schedule_.updates && findings_.empty()) check_versions(schedule_, findings_);
    return findings_.take();
  }

 private:
  void check_ops() {
    seen_.assign(static_cast<std::size_t>(schedule_.stages * schedule_.micro_batches * schedule_.slices), 0);
    replica_of_.assign(static_cast<std::size_t>(schedule_.micro_batches), -1);
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w)
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) check_op(schedule_.workers[w][i], {w, i});
  }

  void check_op(const Op& op, Place place) {
    if (!in_range(op, place)) return;
    std::int64_t& replica = replica_of_[op.micro_batch.index()];
    if (replica < 0) replica = op.replica.value();
    if (replica != op.replica.value())
      findings_.add_at(schedule_, ViolationKind::MixedReplicas, place,
                       "replica {}, but micro-batch {} belongs to replica {}", op.replica.value(),
                       op.micro_batch.value(), replica);
    // A wrong placement is reported already, and may lack this stage.
    if (placed_ && schedule_.placement.worker(op.replica, op.stage).index() != place.worker)
      findings_.add_at(schedule_, ViolationKind::WrongWorker, place, "stage {} of replica {} is on worker {}",
                       op.stage.value(), op.replica.value(), schedule_.placement.worker(op.replica, op.stage).value());
    KindSet& seen = seen_[slot(op)];
    if ((seen & bit(op.kind)) != 0)
      findings_.add_at(schedule_, ViolationKind::DoubledOp, place, "the schedule has this op already");
    seen = static_cast<KindSet>(seen | bit(op.kind));
    if (op.weight_version != 0 && !schedule_.updates)
      findings_.add_at(schedule_, ViolationKind::MissingVersion, place,
                       "weight version {}; a synchronous schedule has version 0 only", op.weight_version);
  }

  bool in_range(const Op& op, Place place) {
    const auto require = [&](const char* what, std::int64_t value, std::int64_t count) {
      if (value >= 0 && value < count) return true;
      findings_.add_at(schedule_, ViolationKind::OutOfRange, place, "{} {} is not in 0 to {}", what, value, count - 1);
      all_in_range_ = false;
      return false;
    };
    // Stage, micro-batch and replica are each reported if they are wrong.
    const bool stage = require("stage", op.stage.value(), schedule_.stages);
    const bool micro_batch = require("micro-batch", op.micro_batch.value(), schedule_.micro_batches) &&
                             require("slice", op.slice, schedule_.slices);
    const auto replicas = static_cast<std::int64_t>(schedule_.placement.num_replicas());
    return require("replica", op.replica.value(), replicas) && stage && micro_batch;
  }

  std::size_t slot(const Op& op) const {
    const std::int64_t row = op.stage.value() * schedule_.micro_batches + op.micro_batch.value();
    return static_cast<std::size_t>(row * schedule_.slices + op.slice);
  }

  void check_complete() {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i] == kWhole || seen_[i] == kSplit) continue;
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t row = at / schedule_.slices;
      report_incomplete(row / schedule_.micro_batches, row % schedule_.micro_batches, at % schedule_.slices, seen_[i]);
    }
  }

  void report_incomplete(std::int64_t s, std::int64_t micro_batch, std::int64_t slice, KindSet seen) {
    const auto part = [&] {
      return schedule_.slices > 1 ? fmt::format("{}.{}", micro_batch, slice) : std::to_string(micro_batch);
    };
    const auto missing = [&](auto message) { findings_.add(ViolationKind::MissingOp, {}, message); };
    const bool whole = (seen & bit(OpKind::Backward)) != 0;
    const bool input = (seen & bit(OpKind::BackwardInput)) != 0;
    const bool weight = (seen & bit(OpKind::BackwardWeight)) != 0;
    if ((seen & bit(OpKind::Forward)) == 0) missing([&] { return fmt::format("{}F{} is missing", s, part()); });
    if (whole && (input || weight)) {
      findings_.add(ViolationKind::DoubledOp, {}, [&] {
        return fmt::format("{0}B{1} and {0}{2}{1} are both present: a backward is whole or split{3}", s, part(),
                           input ? 'I' : 'W',
                           input ? "" : " (in torch 2.5 and older, B is the input gradient: write I for it)");
      });
    } else if (!whole && !input && !weight) {
      missing([&] { return fmt::format("{0}B{1} (or {0}I{1} and {0}W{1}) is missing", s, part()); });
    } else if (!whole && !(input && weight)) {
      missing([&] { return fmt::format("{}{}{} is missing", s, input ? 'W' : 'I', part()); });
    }
  }

  const Schedule& schedule_;
  Findings findings_;
  bool placed_ = false;
  bool all_in_range_ = true;
  std::vector<KindSet> seen_;             // [(stage * N + micro-batch) * k + slice]
  std::vector<std::int64_t> replica_of_;  // [micro-batch], -1 before its first op
};

}  // namespace

// All later code indexes tables by stage, micro-batch, slice and worker, and sizes them by the product of the counts.
// If the result is true, these tables are small enough to allocate.
bool check_placement(const Placement& placement, std::int64_t stages, std::int64_t micro_batches, std::int64_t slices,
                     std::size_t num_workers, Findings& findings) {
  const bool has_slices = slices >= 1 && slices <= kMaxSlices;
  if (!has_slices) findings.add_text(ViolationKind::OutOfRange, "{} slices are not 1 to {}", slices, kMaxSlices);
  const bool has_counts = has_slices && stages >= 1 && micro_batches >= 1 && micro_batches <= kMaxOps / slices / stages;
  if (has_slices && !has_counts)
    findings.add_text(ViolationKind::OutOfRange,
                      "{} stages and {} micro-batches{}; both are positive, their product at most {}", stages,
                      micro_batches, slices == 1 ? "" : fmt::format(" of {} slices", slices), kMaxOps);
  const std::size_t replicas = placement.num_replicas();
  if (replicas == 0) findings.add_text(ViolationKind::BadPlacement, "the schedule has no replica");
  if (replicas > kMaxReplicas)
    findings.add_text(ViolationKind::BadPlacement, "{} replicas; ops can name {} at most", replicas, kMaxReplicas);
  for (std::size_t r = 0; r < replicas; ++r) check_row(r, placement.worker_of[r], stages, num_workers, findings);
  return has_counts;
}

std::vector<Violation> check(const Schedule& schedule) { return ScheduleCheck(schedule).run(); }

}  // namespace chimera
