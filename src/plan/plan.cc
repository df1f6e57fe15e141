#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/reject.h"
#include "core/signals.h"
#include "plan/worker_memory.h"

// The Planner takes the candidates in the order of a lower bound of their step time. It stops when the bound of the
// next one is above the slowest that is kept, so most candidates are never simulated. Each candidate that is tried gets
// stages to recompute or offload until it fits into memory, and its simulation must beat the limit. At the end, the
// best even candidates are balanced.

namespace chimera {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kFaster = 0.999;       // uneven stages must be faster by this factor
constexpr std::size_t kToBalance = 40;  // number of best even candidates to balance

/// Returns no stages for `auto`.
std::set<StageId> given_stages(const Candidate& candidate, const StageChoice& choice, const StageFlag& flag) {
  return resolve_stages(choice, flag, num_stages(candidate), [] { return std::set<StageId>(); });
}

/// Chooses the stages that recompute or offload, by the order of ops (peaks_by_order), and prepares the candidate with
/// them. Returns nullopt if no choice fits. The first prepare() already has the given stages; a second one is needed
/// only if `auto` adds some.
std::optional<PlannedSchedule> fit_in_memory(Predictor& predictor, Candidate& candidate, const PlanOptions& options,
                                             double memory) {
  candidate.recompute = given_stages(candidate, options.recompute, kRecomputeFlag);
  candidate.offload = given_stages(candidate, options.offload, kOffloadFlag);
  PlannedSchedule planned = predictor.prepare(candidate);
  // With `auto` for both flags, the Planner calls this with one of them at a time.
  if (options.offload.rule == StageRule::Auto) {
    const auto offload = stages_to_offload(*planned.schedule, planned.model, candidate.recompute, memory);
    if (!offload) return std::nullopt;
    candidate.offload = *offload;
    return offload->empty() ? planned : predictor.prepare(candidate);
  }
  if (options.recompute.rule != StageRule::Auto) {
    const auto peaks = peaks_by_order(*planned.schedule, planned.model, candidate.recompute);
    return *std::ranges::max_element(peaks) <= memory ? std::optional(std::move(planned)) : std::nullopt;
  }
  const auto recompute = stages_to_recompute(*planned.schedule, planned.model, memory);
  if (!recompute) return std::nullopt;
  if (recompute->empty()) return planned;
  candidate.recompute = options.recompute_all ? all_stages(planned.schedule->stages) : *recompute;
  return predictor.prepare(candidate);
}

/// Returns the partition that balance() finds with the machine's times and the problem's memory, in about 10^5
/// simulated ops. Empty if nothing fits or the result equals the candidate's own partition.
std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate) {
  constexpr std::int64_t kOps = 100'000;
  const PlannedSchedule planned = predictor.prepare(candidate);
  const std::int64_t stages = planned.schedule->stages;
  if (stages < 2) return std::nullopt;
  const BalanceOptions most{.memory = predictor.problem().memory_bytes - predictor.problem().machine.reserved.all(),
                            .recompute = !candidate.recompute.empty(),
                            .candidates = 100,
                            .steps = 3};
  const ModelLoads loads = machine_loads(predictor.problem(), candidate, planned.schedule->micro_batch_scale);
  const auto found = balance(*planned.schedule, loads, limit_ops(most, *planned.schedule, kOps));
  if (!found) return std::nullopt;
  const auto cut = explicit_partition(found->layers, predictor.problem().model.layers, stages);
  if (cut == planned.partition) return std::nullopt;
  return PartitionChoice{PartitionRule::Listed, found->layers};
}

/// Both words mean that even and balanced stages are compared.
bool tries_balanced(const PlanOptions& options) {
  return options.partition.rule == PartitionRule::Balanced || options.partition.rule == PartitionRule::Auto;
}

/// Returns whether several workers hold each stage.
bool has_copies(const Candidate& candidate) {
  return candidate.data_parallel > 1 || find_generator(candidate.schedule).replicas(candidate.shape) > 1;
}

class Planner {
 public:
  Planner(Predictor& predictor, const PlanOptions& options, std::size_t candidates)
      : predictor_(predictor),
        options_(options),
        recomputing_(options),
        offloading_(options),
        top_(options.top > 0 ? static_cast<std::size_t>(options.top) : 2 * candidates),
        kept_(tries_balanced(options) ? std::max(top_, kToBalance) : top_) {
    plan_.considered = static_cast<std::int64_t>(candidates);
    recomputing_.offload = {};
    offloading_.recompute = {};
  }

  Plan run(const std::vector<Candidate>& candidates) {
    std::vector<std::pair<double, const Candidate*>> order;
    const std::vector<double> bounds = least_step_seconds(predictor_.problem(), candidates);
    for (std::size_t i = 0; i < bounds.size(); ++i) order.emplace_back(bounds[i], &candidates[i]);
    std::ranges::stable_sort(order, {}, &std::pair<double, const Candidate*>::first);
    for (std::size_t i = 0; i < order.size(); ++i) {
      // Bounds ascend, so no later candidate can be kept.
      if (order[i].first >= limit()) {
        plan_.pruned += static_cast<std::int64_t>(order.size() - i);
        break;
      }
      const Outcome outcome = try_out(*order[i].second, limit());
      plan_.pruned += outcome == Outcome::TooSlow ? 1 : 0;
      plan_.too_large += outcome == Outcome::TooLarge ? 1 : 0;
    }
    if (tries_balanced(options_)) add_balanced();
    order_ties();
    if (plan_.ranked.size() > top_)
      plan_.ranked.erase(plan_.ranked.begin() + static_cast<std::ptrdiff_t>(top_), plan_.ranked.end());
    plan_.tied = std::min<std::int64_t>(plan_.tied, std::ssize(plan_.ranked));
    return std::move(plan_);
  }

 private:
  enum class Outcome { Ranked, TooSlow, TooLarge };

  [[nodiscard]] double seconds_of(std::size_t place) const { return plan_.ranked[place].prediction.step_seconds; }

  /// Returns the time that a candidate must beat to be kept. All that tie with the fastest are kept.
  [[nodiscard]] double limit() const {
    return plan_.ranked.size() < kept_ ? kNever : std::max(seconds_of(kept_ - 1), (1 + kTie) * seconds_of(0));
  }

  void order_ties() {
    auto& rows = plan_.ranked;
    const auto differs = [&](const RankedCandidate& each) {
      return each.prediction.step_seconds > (1 + kTie) * seconds_of(0);
    };
    const auto end = std::ranges::find_if(rows, differs);
    plan_.tied = end - rows.begin();
    std::stable_sort(rows.begin(), end, [](const auto& one, const auto& two) {
      return one.prediction.peak_memory_bytes < two.prediction.peak_memory_bytes;
    });
  }

  /// Balancing costs many simulations, so only the best even candidates are balanced.
  void add_balanced() {
    std::vector<RankedCandidate> even = plan_.ranked;
    if (even.size() > kept_) even.resize(kept_);
    for (const RankedCandidate& each : even) {
      const auto cut = balanced_cut(predictor_, each.candidate);
      if (!cut) continue;
      Candidate candidate = each.candidate;
      candidate.partition = *cut;
      (void)try_out(candidate, std::min(limit(), kFaster * each.prediction.step_seconds));
    }
  }

  /// Returns whether memory made the planner save some, or nothing helped.
  [[nodiscard]] bool is_short(const Candidate& candidate, Outcome outcome) const {
    return outcome == Outcome::TooLarge ||
           (options_.recompute.rule == StageRule::Auto && !candidate.recompute.empty()) ||
           (options_.offload.rule == StageRule::Auto && !candidate.offload.empty());
  }

  /// If memory is short, also tries a sharded optimizer.
  Outcome try_out(Candidate candidate, double seconds) {
    const Outcome whole = try_saving(candidate, seconds);
    const bool shards = options_.may_shard && !predictor_.problem().shard_optimizer && !candidate.shard_optimizer;
    if (!shards || !has_copies(candidate) || !is_short(candidate, whole)) return whole;
    candidate.shard_optimizer = true;
    // Outcomes ascend from best to worst.
    return std::min(whole, try_saving(candidate, std::min(seconds, limit())));
  }

  /// If both flags are `auto`, offloading is tried first; if it needs no stage, recomputation cannot be better.
  Outcome try_saving(Candidate& candidate, double seconds) {
    if (options_.recompute.rule != StageRule::Auto || options_.offload.rule != StageRule::Auto)
      return try_out(candidate, seconds, options_);
    const Outcome offloading = try_out(candidate, seconds, offloading_);
    if (offloading != Outcome::TooLarge && candidate.offload.empty()) return offloading;
    const Outcome recomputing = try_out(candidate, std::min(seconds, limit()), recomputing_);
    return std::min(offloading, recomputing);
  }

  /// Recomputation or offloading is first chosen by the order of ops. If waiting messages then exceed the memory,
  /// `memory` decreases until enough stages are chosen.
  Outcome try_out(Candidate& candidate, double seconds, const PlanOptions& options) {
    throw_if_interrupted();
    if (options_.progress) options_.progress(++tried_);
    double memory = predictor_.problem().memory_bytes;
    while (const auto planned = fit_in_memory(predictor_, candidate, options, memory)) {
      const auto prediction = predictor_.predict_below(seconds, *planned, candidate);
      if (!prediction) return Outcome::TooSlow;
      if (prediction->fits) {
        insert({candidate, *prediction});
        return Outcome::Ranked;
      }
      const auto by_order = peaks_by_order(*planned->schedule, planned->model, candidate.recompute);
      const double excess = prediction->peak_memory_bytes - predictor_.problem().memory_bytes;
      // At least a byte less than the last choice took, so that another stage is chosen and the loop ends.
      memory = std::min(memory - excess, *std::ranges::max_element(by_order) - 1);
    }
    return Outcome::TooLarge;
  }

  void insert(const RankedCandidate& next) {
    const auto seconds = [](const RankedCandidate& each) { return each.prediction.step_seconds; };
    plan_.ranked.insert(std::ranges::upper_bound(plan_.ranked, seconds(next), {}, seconds), next);
    while (plan_.ranked.size() > kept_ && seconds(plan_.ranked.back()) > limit()) plan_.ranked.pop_back();
  }

  Predictor& predictor_;
  const PlanOptions& options_;
  PlanOptions recomputing_;
  PlanOptions offloading_;
  std::size_t top_;   // final number of ranked candidates
  std::size_t kept_;  // number to keep until balancing
  std::int64_t tried_ = 0;
  Plan plan_;
};

/// Names the least memory that would do, so that the user need not try. Candidates that surely need more than others
/// are skipped, because each costs a schedule.
[[noreturn]] void refuse(Predictor& predictor, const std::vector<Candidate>& candidates, const PlanOptions& options) {
  const bool free = options.recompute.rule == StageRule::Auto;
  const bool offloads = options.offload.rule == StageRule::Auto;
  double least = kNever;
  const Candidate* smallest = nullptr;
  std::set<std::string> seen;
  for (const Candidate& candidate : candidates) {
    throw_if_interrupted();
    // Smaller micro-batches of the same shape need less memory, and are candidates too.
    const bool deep_enough = candidate.shape.micro_batches > 4 * candidate.shape.stages;
    if (options.given.empty() && deep_enough && candidate.micro_batch_size > 1) continue;
    Candidate least_state = candidate;
    // The smallest state that the planner may choose.
    least_state.shard_optimizer = options.may_shard;
    const PlannedSchedule planned = predictor.prepare(least_state);
    const std::set<StageId> all = all_stages(num_stages(candidate));
    const auto peak_with = [&](const std::set<StageId>& recompute, const std::set<StageId>& offload) {
      return std::ranges::max(peaks_by_order(*planned.schedule, planned.model, recompute, offload));
    };
    const std::set<StageId> given = given_stages(candidate, options.offload, kOffloadFlag);
    double peak = kNever;
    if (free) peak = peak_with(all, given);
    if (!free || offloads) {
      const std::set<StageId> recompute = given_stages(candidate, options.recompute, kRecomputeFlag);
      peak = std::min(peak, peak_with(recompute, offloads ? all : given));
    }
    if (peak >= least) continue;
    least = peak;
    smallest = &candidate;
  }
  const PlanProblem& problem = predictor.problem();
  reject("{} does not fit on {} workers of {:.4g} GiB; it needs at least {:.4g} GiB ({}, recomputing {}{})",
         problem.model.name, problem.workers, problem.memory_bytes / kGiB, std::ceil(least / kGiB * 100) / 100,
         smallest == nullptr ? "" : describe(*smallest), free ? "all" : to_text(options.recompute),
         offloads ? " or offloading all" : "");
}

Plan rank(Predictor& predictor, const std::vector<Candidate>& candidates, const PlanOptions& options) {
  return Planner(predictor, options, candidates.size()).run(candidates);
}

}  // namespace

Plan make_plan(Predictor& predictor, const PlanOptions& options) {
  const auto candidates = list_candidates(predictor.problem(), options);
  Plan plan = rank(predictor, candidates, options);
  if (plan.ranked.empty()) refuse(predictor, candidates, options);
  return plan;
}

std::vector<RankedCandidate> plan_pareto_front(const Predictor& predictor, PlanOptions options) {
  constexpr double kLess = 0.95;  // memory of the next row relative to the previous peak
  options.top = 1;
  const auto candidates = list_candidates(predictor.problem(), options);
  Predictor limited = predictor;
  std::vector<RankedCandidate> rows = {make_plan(limited, options).ranked.front()};
  // Each row frees at least 5 %, so the loop ends.
  while (true) {
    limited = limited.with_memory(kLess * rows.back().prediction.peak_memory_bytes);
    const Plan plan = rank(limited, candidates, options);
    if (plan.ranked.empty()) return rows;
    rows.push_back(plan.ranked.front());
  }
}

}  // namespace chimera
