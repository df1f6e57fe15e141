#include "check/check_schedule.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>

#include "schedule/dependencies.h"

namespace chimera {
namespace {

class ScheduleCheck {
 public:
  explicit ScheduleCheck(const Schedule& schedule) : schedule_(schedule) {}

  std::vector<Violation> run() {
    check_placement();
    const bool placed = violations_.empty();
    check_ops(placed);
    if (!all_in_range_) return std::move(violations_);
    check_complete();
    check_acyclic();
    return std::move(violations_);
  }

 private:
  void report(ViolationKind kind, std::string message, std::vector<Place> places = {}) {
    violations_.push_back({kind, std::move(message), std::move(places)});
  }

  void check_placement() {
    const auto workers = static_cast<std::int64_t>(schedule_.workers.size());
    const std::size_t replicas = schedule_.placement.num_replicas();
    if (replicas == 0) report(ViolationKind::BadPlacement, "the schedule has no replica");
    if (replicas > kMostReplicas) {
      report(ViolationKind::BadPlacement, fmt::format("{} replicas; ops can name {} at most", replicas, kMostReplicas));
    }
    for (std::size_t r = 0; r < schedule_.placement.num_replicas(); ++r) {
      const auto& row = schedule_.placement.worker_of[r];
      if (static_cast<std::int64_t>(row.size()) != schedule_.stages) {
        report(ViolationKind::BadPlacement,
               fmt::format("replica {} places {} stages; the schedule has {}", r, row.size(), schedule_.stages));
      }
      for (std::size_t s = 0; s < row.size(); ++s) {
        if (row[s].value() >= 0 && row[s].value() < workers) continue;
        report(ViolationKind::BadPlacement,
               fmt::format("replica {} places stage {} on worker {}; there are workers 0 to {}", r, s, row[s].value(),
                           workers - 1));
      }
    }
  }

  void check_ops(bool placed) {
    const auto slots = static_cast<std::size_t>(schedule_.stages * schedule_.micro_batches);
    for (auto& seen : seen_) seen.assign(slots, false);
    replica_of_.assign(static_cast<std::size_t>(schedule_.micro_batches), -1);
    for (std::size_t w = 0; w < schedule_.workers.size(); ++w) {
      for (std::size_t i = 0; i < schedule_.workers[w].size(); ++i) check_op({w, i}, placed);
    }
  }

  void check_op(Place place, bool placed) {
    const Op& op = schedule_.workers[place.worker][place.position];
    const std::string where = fmt::format("worker {}, op {} ({})", place.worker, place.position, to_text(op));
    if (!in_range(op, where, place)) return;
    std::int64_t& replica = replica_of_[op.micro_batch.index()];
    if (replica < 0) replica = op.replica.value();
    if (replica != op.replica.value()) {
      report(ViolationKind::MixedReplicas,
             fmt::format("{}: replica {}, but micro-batch {} belongs to replica {}", where, op.replica.value(),
                         op.micro_batch.value(), replica),
             {place});
    }
    if (placed && schedule_.placement.worker(op.replica, op.stage).index() != place.worker) {
      report(ViolationKind::WrongWorker,
             fmt::format("{}: stage {} of replica {} is on worker {}", where, op.stage.value(), op.replica.value(),
                         schedule_.placement.worker(op.replica, op.stage).value()),
             {place});
    }
    auto seen = seen_[static_cast<std::size_t>(op.kind)][slot(op.stage, op.micro_batch)];
    if (seen) report(ViolationKind::DoubledOp, where + ": the schedule has this op already", {place});
    seen = true;
  }

  bool in_range(const Op& op, const std::string& where, Place place) {
    const auto require = [&](const char* what, std::int64_t value, std::int64_t count) {
      if (value >= 0 && value < count) return true;
      report(ViolationKind::OutOfRange, fmt::format("{}: {} {} is not in 0 to {}", where, what, value, count - 1),
             {place});
      all_in_range_ = false;
      return false;
    };
    const bool stage = require("stage", op.stage.value(), schedule_.stages);
    const bool micro_batch = require("micro-batch", op.micro_batch.value(), schedule_.micro_batches);
    const auto replicas = static_cast<std::int64_t>(schedule_.placement.num_replicas());
    return require("replica", op.replica.value(), replicas) && stage && micro_batch;
  }

  std::size_t slot(StageId stage, MicroBatchId micro_batch) const {
    return stage.index() * static_cast<std::size_t>(schedule_.micro_batches) + micro_batch.index();
  }

  bool seen(OpKind kind, std::int64_t stage, std::int64_t micro_batch) const {
    return seen_[static_cast<std::size_t>(kind)][slot(StageId(stage), MicroBatchId(micro_batch))];
  }

  /// Lists what is missing, up to kMostMissing places: a few bytes can claim a hundred million of them.
  void check_complete() {
    std::int64_t incomplete = 0;
    for (std::int64_t s = 0; s < schedule_.stages; ++s) {
      for (std::int64_t m = 0; m < schedule_.micro_batches; ++m) {
        if (!complete(s, m) && ++incomplete <= kMostMissing) report_incomplete(s, m);
      }
    }
    if (incomplete <= kMostMissing) return;
    report(ViolationKind::MissingOp,
           fmt::format("ops of {} more micro-batches at a stage are missing", incomplete - kMostMissing));
  }

  bool complete(std::int64_t s, std::int64_t m) const {
    const bool whole = seen(OpKind::Backward, s, m);
    const bool input = seen(OpKind::BackwardInput, s, m);
    const bool weight = seen(OpKind::BackwardWeight, s, m);
    return seen(OpKind::Forward, s, m) && (whole ? !input && !weight : input && weight);
  }

  void report_incomplete(std::int64_t s, std::int64_t m) {
    const bool whole = seen(OpKind::Backward, s, m);
    const bool input = seen(OpKind::BackwardInput, s, m);
    const bool weight = seen(OpKind::BackwardWeight, s, m);
    if (!seen(OpKind::Forward, s, m)) report(ViolationKind::MissingOp, fmt::format("{}F{} is missing", s, m));
    if (whole && (input || weight)) {
      report(ViolationKind::DoubledOp,
             fmt::format("{0}B{1} stands beside {0}{2}{1}: a backward is whole or split", s, m, input ? 'I' : 'W'));
    } else if (!whole && !input && !weight) {
      report(ViolationKind::MissingOp, fmt::format("{0}B{1} (or {0}I{1} and {0}W{1}) is missing", s, m));
    } else if (!whole && !(input && weight)) {
      report(ViolationKind::MissingOp, fmt::format("{}{}{} is missing", s, input ? 'W' : 'I', m));
    }
  }

  void check_acyclic() {
    const OpTable table(schedule_);
    const auto visited = visit_in_dependency_order(table, [&](OpIndex op) { done_.at(table, op); });
    // Each stuck worker waits for an op that stands on a stuck worker; following the waits must close a cycle.
    std::vector<std::size_t> position_in_path(schedule_.workers.size(), kUnseen);
    std::optional<std::size_t> worker;
    for (std::size_t w = 0; w < visited.size() && !worker; ++w) {
      if (visited[w] < schedule_.workers[w].size()) worker = w;
    }
    if (!worker) return;
    std::vector<Place> path;
    while (position_in_path[*worker] == kUnseen) {
      position_in_path[*worker] = path.size();
      path.push_back({*worker, visited[*worker]});
      worker = table.worker(missing_input(table, path.back()));
    }
    path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(position_in_path[*worker]));
    report_cycle(table, path);
  }

  OpIndex missing_input(const OpTable& table, Place place) const {
    for (const OpIndex input : table.inputs(schedule_.workers[place.worker][place.position])) {
      if (input != kNoOp && !done_.contains(input)) return input;
    }
    return kNoOp;  // not reached: a stuck op lacks an input
  }

  void report_cycle(const OpTable& table, const std::vector<Place>& cycle) {
    std::string message;
    for (const Place& place : cycle) {
      const OpIndex input = missing_input(table, place);
      const std::size_t other = table.worker(input);
      message += fmt::format("{}worker {} cannot run {} (its op {}) before {} (op {} of worker {})",
                             message.empty() ? "" : "; ", place.worker,
                             to_text(schedule_.workers[place.worker][place.position]), place.position,
                             to_text(table.op(input)), input - table.first(other), other);
    }
    report(ViolationKind::Cycle, message, cycle);
  }

  /// The ops that ran.
  class Done {
   public:
    void at(const OpTable& table, OpIndex op) {
      if (done_.empty()) done_.assign(table.size(), false);
      done_[op] = true;
    }
    bool contains(OpIndex op) const { return !done_.empty() && done_[op]; }

   private:
    std::vector<bool> done_;
  };

  static constexpr std::int64_t kMostMissing = 10'000;
  static constexpr std::size_t kMostReplicas = std::numeric_limits<std::int16_t>::max();  // as ReplicaId counts
  static constexpr std::size_t kUnseen = std::numeric_limits<std::size_t>::max();
  const Schedule& schedule_;
  std::vector<Violation> violations_;
  bool all_in_range_ = true;
  std::array<std::vector<bool>, kOpKinds> seen_;  // [kind][stage * N + micro-batch]
  std::vector<std::int64_t> replica_of_;          // [micro-batch], -1 where not yet seen
  Done done_;
};

}  // namespace

std::vector<Violation> check(const Schedule& schedule) { return ScheduleCheck(schedule).run(); }

}  // namespace chimera
