#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/error.h"
#include "plan/worker_memory.h"

namespace chimera {
namespace {

constexpr double kGiB = 1 << 30;

bool faster(const RankedCandidate& a, const RankedCandidate& b) {
  return a.prediction.step_seconds < b.prediction.step_seconds;
}

/// The candidate with what it has to recompute; none where nothing helps.
std::optional<PlannedSchedule> fitted(Predictor& predictor, Candidate& candidate) {
  PlannedSchedule planned = predictor.prepare(candidate);
  const auto recompute = stages_to_recompute(*planned.schedule, planned.model, predictor.problem().memory_bytes);
  if (!recompute) return std::nullopt;
  if (recompute->empty()) return planned;
  candidate.recompute = *recompute;
  return predictor.prepare(candidate);
}

std::set<StageId> all_stages(std::int64_t count) {
  std::set<StageId> stages;
  for (std::int64_t s = 0; s < count; ++s) stages.emplace(s);
  return stages;
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
  const auto top = options.top > 0 ? static_cast<std::size_t>(options.top) : candidates.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (plan.ranked.size() == top && order[i].first >= plan.ranked.back().prediction.step_seconds) {
      plan.pruned = static_cast<std::int64_t>(order.size() - i);
      break;
    }
    RankedCandidate next{*order[i].second, {}};
    const auto planned = fitted(predictor, next.candidate);
    if (planned) next.prediction = predictor.predict(*planned, next.candidate);
    if (!planned || !next.prediction.fits) {
      ++plan.too_large;
      continue;
    }
    plan.ranked.insert(std::ranges::upper_bound(plan.ranked, next, faster), next);
    if (plan.ranked.size() > top) plan.ranked.pop_back();
  }
  if (plan.ranked.empty()) refuse(predictor, candidates);
  return plan;
}

}  // namespace chimera
