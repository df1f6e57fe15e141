#include "plan/equation_one.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace chimera {
namespace {

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Chimera's counts for a shape; `each` is the number of micro-batches that a pipeline has of a unit of D.
class ChimeraCounts {
 public:
  explicit ChimeraCounts(const PipelineShape& shape)
      : depth_(shape.stages), pipelines_(shape.pipelines), each_(shape.stages / shape.pipelines) {}

  [[nodiscard]] CriticalOps direct(std::int64_t count) const {
    if (count <= depth_) return {depth_, depth_ + 2 * share(count) - 2};
    const std::int64_t units = count / depth_;
    return plus({depth_ + (units - 1) * (depth_ - 2 * each_ + 2), units * (depth_ + 2 * each_ - 2)},
                joined(count % depth_));
  }

  [[nodiscard]] CriticalOps doubling(std::int64_t count, double ratio) const {
    const std::int64_t units = count / (2 * depth_);
    const std::int64_t left = count % (2 * depth_);
    if (units == 0 && left <= depth_) return direct(left);
    const std::int64_t spare = ratio > 2 ? 2 * each_ - 2 : 0;  // bubbles of a backward beyond two forwards, each unit
    const std::int64_t last = share(left) * pipelines_;        // a last unit beyond D, in whole rounds
    const std::int64_t whole = units == 0 ? last : 2 * depth_;
    CriticalOps counts{whole + each_ - 1, whole + each_ - 1};
    if (units == 0) return counts;
    counts = plus(counts, {(units - 1) * (whole - 2 * spare), (units - 1) * (whole + spare)});
    return plus(counts, left <= depth_ ? joined(left) : CriticalOps{last - 2 * spare, last + spare});
  }

 private:
  [[nodiscard]] std::int64_t share(std::int64_t count) const { return ceil_of(count, pipelines_); }
  /// A last unit of direct concatenation behind others.
  [[nodiscard]] CriticalOps joined(std::int64_t count) const {
    if (count == 0) return {};
    return {depth_ - 2 * each_ + 2, depth_ + 2 * share(count) - 2};
  }
  static CriticalOps plus(CriticalOps a, CriticalOps b) { return {a.forwards + b.forwards, a.backwards + b.backwards}; }

  std::int64_t depth_;
  std::int64_t pipelines_;
  std::int64_t each_;
};

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Sums of gradients that a worker has to do, and where there is room for them.
class Sums {
 public:
  Sums(const Schedule& schedule, const PipelineShape& shape, const CostTable& costs, EquationOne& equation)
      : schedule_(schedule), shape_(shape), costs_(costs), equation_(equation) {
    updates_ = schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1;
  }

  void run() {
    if (!costs_.has_all_reduces()) return;
    const auto groups = gradient_groups(schedule_.placement, costs_.has_tied_matrix());
    std::vector<std::vector<StageId>> held(schedule_.workers.size());
    for (std::size_t s = 0; s < groups.size(); ++s) {
      for (const WorkerId worker : groups[s]) held[worker.index()].emplace_back(static_cast<std::int64_t>(s));
    }
    for (std::size_t w = 0; w < held.size(); ++w) add_worker(static_cast<std::int64_t>(w), held[w]);
  }

 private:
  void add_worker(std::int64_t worker, const std::vector<StageId>& held) {
    double sum = 0;
    for (const StageId stage : held) sum += costs_.all_reduce(stage) * static_cast<double>(updates_);
    const double left = unoverlapped(worker, held, sum);
    if (left < equation_.unoverlapped || sum == 0) return;
    if (left == equation_.unoverlapped && sum <= equation_.all_reduce) return;
    equation_.unoverlapped = left;
    equation_.all_reduce = sum;
  }

  [[nodiscard]] double unoverlapped(std::int64_t worker, const std::vector<StageId>& held, double sum) const {
    const double both = equation_.forward + equation_.backward;
    if (schedule_.name == "gpipe" || schedule_.name == "1f1b")
      return std::max(0.0, sum - static_cast<double>(worker) * both);
    if (schedule_.name != "chimera" || shape_.pipelines != 2) return sum;
    const std::int64_t depth = shape_.stages;
    const std::int64_t inner = std::min(worker, depth - 1 - worker);
    double early = 0;  // what its larger stage has room for before the worker's last op
    for (const StageId stage : held) {
      if (stage.value() >= depth / 2) early += costs_.all_reduce(stage);
    }
    const double room = static_cast<double>(depth / 2 - 1 - inner) * equation_.backward;
    return std::max(0.0, sum - std::min(early, room) - static_cast<double>(inner) * both);
  }

  const Schedule& schedule_;
  const PipelineShape& shape_;
  const CostTable& costs_;
  EquationOne& equation_;
  std::int64_t updates_ = 1;  // in a step
};

}  // namespace

std::optional<CriticalOps> critical_ops(const std::string& schedule, const PipelineShape& shape, double ratio) {
  const std::int64_t depth = shape.stages;
  const std::int64_t count = shape.micro_batches;
  if (schedule == "gpipe" || schedule == "1f1b") return CriticalOps{count + depth - 1, count + depth - 1};
  if (schedule == "gems") return CriticalOps{count + depth - 1, count * depth};
  if (schedule == "pipedream" || schedule == "pipedream-2bw") return CriticalOps{count, count};
  if (schedule != "chimera") return std::nullopt;
  const ChimeraCounts counts(shape);
  switch (shape.scale) {
    case ScaleMethod::Direct: return counts.direct(count);
    case ScaleMethod::Doubling: return counts.doubling(count, ratio);
    case ScaleMethod::Halving: return counts.doubling(2 * count, ratio);
  }
  return std::nullopt;
}

std::optional<EquationOne> equation_one(const Schedule& schedule, const PipelineShape& shape, const CostModel& costs) {
  EquationOne equation;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const double again = costs.recompute.empty() ? 0 : costs.recompute[s];
    equation.forward += costs.stages[s].forward;
    equation.backward += costs.stages[s].backward + again;
  }
  const double part = schedule.micro_batch_scale / static_cast<double>(costs.stages.size());
  equation.forward *= part;
  equation.backward *= part;
  if (schedule.workers.size() > 1) {
    equation.point_to_point = costs.latency;
    if (costs.links)
      equation.point_to_point +=
          costs.links->alpha + costs.links->beta * mean_of(costs.links->bytes) * schedule.micro_batch_scale;
  }
  const auto counts =
      critical_ops(schedule.name, shape, equation.forward > 0 ? equation.backward / equation.forward : 2);
  if (!counts) return std::nullopt;
  equation.critical = *counts;
  Sums(schedule, shape, CostTable(schedule, costs), equation).run();
  equation.seconds = (equation.forward + equation.point_to_point) * static_cast<double>(equation.critical.forwards) +
                     (equation.backward + equation.point_to_point) * static_cast<double>(equation.critical.backwards) +
                     equation.unoverlapped;
  return equation;
}

}  // namespace chimera
