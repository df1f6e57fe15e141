#include "check/check_schedule.h"

#include <fmt/format.h>

#include "check/check_pairs.h"
#include "check/check_placement.h"
#include "check/check_versions.h"
#include "check/findings.h"

namespace chimera {
namespace {

/// The kinds of op seen at one (stage, micro-batch), a bit each.
using KindSet = std::uint8_t;
constexpr KindSet bit(OpKind kind) { return static_cast<KindSet>(1U << static_cast<unsigned>(kind)); }
constexpr KindSet kWhole = bit(OpKind::Forward) | bit(OpKind::Backward);
constexpr KindSet kSplit = bit(OpKind::Forward) | bit(OpKind::BackwardInput) | bit(OpKind::BackwardWeight);

class ScheduleCheck {
 public:
  explicit ScheduleCheck(const Schedule& schedule) : schedule_(schedule) {}

  std::vector<Violation> run() {
    if (!check_placement(schedule_.placement, schedule_.stages, schedule_.micro_batches, schedule_.workers.size(),
                         findings_)) {
      return findings_.take();
    }
    placed_ = findings_.empty();
    check_ops();
    check_complete();
    if (all_in_range_) check_acyclic(schedule_, Pairs::InOrder, findings_);
    if (findings_.empty() && has_pairs(schedule_)) check_pairs(schedule_, findings_);
    if (schedule_.updates && findings_.empty()) check_versions(schedule_, findings_);
    return findings_.take();
  }

 private:
  void check_ops() {
    seen_.assign(static_cast<std::size_t>(schedule_.stages * schedule_.micro_batches), 0);
    replica_of_.assign(static_cast<std::size_t>(schedule_.micro_batches), -1);
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) check_op(schedule_.workers[w][i], {w, i});
    }
  }

  void check_op(const Op& op, Place place) {
    if (!in_range(op, place)) return;
    std::int64_t& replica = replica_of_[op.micro_batch.index()];
    if (replica < 0) replica = op.replica.value();
    if (replica != op.replica.value()) {
      findings_.add_at(schedule_, ViolationKind::MixedReplicas, place,
                       "replica {}, but micro-batch {} belongs to replica {}", op.replica.value(),
                       op.micro_batch.value(), replica);
    }
    if (placed_ && schedule_.placement.worker(op.replica, op.stage).index() != place.worker) {
      findings_.add_at(schedule_, ViolationKind::WrongWorker, place, "stage {} of replica {} is on worker {}",
                       op.stage.value(), op.replica.value(), schedule_.placement.worker(op.replica, op.stage).value());
    }
    KindSet& seen = seen_[slot(op.stage.value(), op.micro_batch.value())];
    if ((seen & bit(op.kind)) != 0)
      findings_.add_at(schedule_, ViolationKind::DoubledOp, place, "the schedule has this op already");
    seen = static_cast<KindSet>(seen | bit(op.kind));
    if (op.weight_version != 0 && !schedule_.updates) {
      findings_.add_at(schedule_, ViolationKind::MissingVersion, place,
                       "weight version {}; a synchronous schedule has version 0 only", op.weight_version);
    }
  }

  bool in_range(const Op& op, Place place) {
    const auto require = [&](const char* what, std::int64_t value, std::int64_t count) {
      if (value >= 0 && value < count) return true;
      findings_.add_at(schedule_, ViolationKind::OutOfRange, place, "{} {} is not in 0 to {}", what, value, count - 1);
      all_in_range_ = false;
      return false;
    };
    const bool stage = require("stage", op.stage.value(), schedule_.stages);
    const bool micro_batch = require("micro-batch", op.micro_batch.value(), schedule_.micro_batches);
    const auto replicas = static_cast<std::int64_t>(schedule_.placement.num_replicas());
    return require("replica", op.replica.value(), replicas) && stage && micro_batch;
  }

  std::size_t slot(std::int64_t stage, std::int64_t micro_batch) const {
    return static_cast<std::size_t>(stage * schedule_.micro_batches + micro_batch);
  }

  /// Lists what is missing at the first kMostPlaces places.
  void check_complete() {
    std::int64_t incomplete = 0;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i] == kWhole || seen_[i] == kSplit || ++incomplete > kMostPlaces) continue;
      const auto at = static_cast<std::int64_t>(i);
      report_incomplete(at / schedule_.micro_batches, at % schedule_.micro_batches, seen_[i]);
    }
    if (incomplete <= kMostPlaces) return;
    findings_.add_summary(ViolationKind::MissingOp,
                          fmt::format("ops of {} more micro-batches at a stage are missing", incomplete - kMostPlaces));
  }

  void report_incomplete(std::int64_t s, std::int64_t m, KindSet seen) {
    const auto missing = [&](auto message) { findings_.add(ViolationKind::MissingOp, {}, message); };
    const bool whole = (seen & bit(OpKind::Backward)) != 0;
    const bool input = (seen & bit(OpKind::BackwardInput)) != 0;
    const bool weight = (seen & bit(OpKind::BackwardWeight)) != 0;
    if ((seen & bit(OpKind::Forward)) == 0) missing([&] { return fmt::format("{}F{} is missing", s, m); });
    if (whole && (input || weight)) {
      findings_.add(ViolationKind::DoubledOp, {}, [&] {
        return fmt::format("{0}B{1} stands beside {0}{2}{1}: a backward is whole or split", s, m, input ? 'I' : 'W');
      });
    } else if (!whole && !input && !weight) {
      missing([&] { return fmt::format("{0}B{1} (or {0}I{1} and {0}W{1}) is missing", s, m); });
    } else if (!whole && !(input && weight)) {
      missing([&] { return fmt::format("{}{}{} is missing", s, input ? 'W' : 'I', m); });
    }
  }

  static constexpr std::int64_t kMostPlaces = 10'000;
  const Schedule& schedule_;
  Findings findings_;
  bool placed_ = false;
  bool all_in_range_ = true;
  std::vector<KindSet> seen_;             // [stage * N + micro-batch]
  std::vector<std::int64_t> replica_of_;  // [micro-batch], -1 where not yet seen
};

}  // namespace

std::vector<Violation> check(const Schedule& schedule) { return ScheduleCheck(schedule).run(); }

}  // namespace chimera
