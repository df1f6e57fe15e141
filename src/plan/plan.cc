#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"
#include "plan/balanced_cut.h"
#include "plan/worker_memory.h"

namespace chimera {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kFaster = 0.999;  // of a time: what is worth uneven stages

bool faster(const RankedCandidate& a, const RankedCandidate& b) {
  return a.prediction.step_seconds < b.prediction.step_seconds;
}

std::set<StageId> all_stages(std::int64_t count) {
  std::set<StageId> stages;
  for (std::int64_t s = 0; s < count; ++s) stages.emplace(s);
  return stages;
}

/// The candidate with what it has to recompute; none where nothing helps.
std::optional<PlannedSchedule> fitted(Predictor& predictor, Candidate& candidate, const PlanOptions& options) {
  PlannedSchedule planned = predictor.prepare(candidate);
  const auto recompute = stages_to_recompute(*planned.schedule, planned.model, predictor.problem().memory_bytes);
  if (!recompute) return std::nullopt;
  if (recompute->empty()) return planned;
  candidate.recompute = options.recompute_all ? all_stages(planned.schedule->stages) : *recompute;
  return predictor.prepare(candidate);
}

/// Candidates that are ranked, at most `top` of them.
class Ranking {
 public:
  Ranking(Plan& plan, std::size_t top) : ranked_(plan.ranked), top_(top) {}

  void add(const RankedCandidate& next) {
    ranked_.insert(std::ranges::upper_bound(ranked_, next, faster), next);
    if (ranked_.size() > top_) ranked_.pop_back();
  }
  /// Whether nothing that takes `seconds` or more can be ranked.
  [[nodiscard]] bool excludes(double seconds) const {
    return ranked_.size() == top_ && seconds >= ranked_.back().prediction.step_seconds;
  }

 private:
  std::vector<RankedCandidate>& ranked_;
  std::size_t top_;
};

/// The candidate as it fits best; none where it does not fit.
std::optional<RankedCandidate> predicted(Predictor& predictor, const Candidate& candidate, const PlanOptions& options) {
  RankedCandidate next{candidate, {}};
  const auto planned = fitted(predictor, next.candidate, options);
  if (!planned) return std::nullopt;
  next.prediction = predictor.predict(*planned, next.candidate);
  if (!next.prediction.fits) return std::nullopt;
  return next;
}

/// Tries the ranked candidates with stages that balance.
void add_balanced(Predictor& predictor, const PlanOptions& options, Plan& plan, Ranking& ranking) {
  const std::vector<RankedCandidate> even = plan.ranked;
  for (const RankedCandidate& each : even) {
    const auto cut = balanced_cut(predictor, each.candidate);
    if (!cut) continue;
    Candidate candidate = each.candidate;
    candidate.partition = *cut;
    candidate.recompute.clear();
    const auto next = predicted(predictor, candidate, options);
    if (next && next->prediction.step_seconds < kFaster * each.prediction.step_seconds) ranking.add(*next);
  }
}

/// The least memory that any of the candidates needs, recomputing everything.
[[noreturn]] void refuse(Predictor& predictor, const std::vector<Candidate>& candidates) {
  double least = std::numeric_limits<double>::infinity();
  const Candidate* smallest = nullptr;
  std::set<std::string> seen;
  for (const Candidate& candidate : candidates) {
    if (candidate.shape.micro_batches > 4 * candidate.shape.stages && candidate.micro_batch_size > 1) continue;
    const PlannedSchedule planned = predictor.prepare(candidate);
    const auto peaks = peaks_by_order(*planned.schedule, planned.model, all_stages(planned.schedule->stages));
    const double peak = *std::ranges::max_element(peaks);
    if (peak >= least) continue;
    least = peak;
    smallest = &candidate;
  }
  const PlanProblem& problem = predictor.problem();
  throw ConfigError(fmt::format(
      "{} does not fit on {} workers of {:.4g} GiB; the least that would do is {:.4g} GiB ({}, recomputing all)",
      problem.model.name, problem.workers, problem.memory_bytes / kGiB, std::ceil(least / kGiB * 100) / 100,
      smallest == nullptr ? "" : in_words(*smallest)));
}

}  // namespace

Plan make_plan(Predictor& predictor, const PlanOptions& options) {
  const auto candidates = candidates_of(predictor.problem(), options);
  std::vector<std::pair<double, const Candidate*>> order;
  for (const Candidate& candidate : candidates)
    order.emplace_back(least_step_seconds(predictor.problem(), candidate), &candidate);
  std::ranges::stable_sort(order, {}, &std::pair<double, const Candidate*>::first);
  Plan plan;
  plan.considered = static_cast<std::int64_t>(candidates.size());
  Ranking ranking(plan, options.top > 0 ? static_cast<std::size_t>(options.top) : 2 * candidates.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (ranking.excludes(order[i].first)) {
      plan.pruned = static_cast<std::int64_t>(order.size() - i);
      break;
    }
    const auto next = predicted(predictor, *order[i].second, options);
    if (next) ranking.add(*next);
    if (!next) ++plan.too_large;
  }
  if (options.partition == "balanced" && !plan.ranked.empty()) add_balanced(predictor, options, plan, ranking);
  if (plan.ranked.empty()) refuse(predictor, candidates);
  return plan;
}

}  // namespace chimera
