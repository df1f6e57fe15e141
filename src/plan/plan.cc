#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reject.h"
#include "core/signals.h"
#include "generate/registry.h"
#include "plan/worker_memory.h"

// The Planner takes the candidates in the order of a lower bound of their step time. It stops when the bound of the
// next one is above the slowest that is kept, so most candidates are never simulated. Each candidate that is tried gets
// stages to recompute or offload until it fits into memory, and its simulation must beat the limit. At the end, the
// best even candidates are balanced.

namespace chimera {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kFaster = 0.999;       // uneven stages must be faster by this factor
constexpr std::size_t kToImprove = 40;  // number of best even candidates to balance, or to recompute by blocks

/// Returns no stages for `auto`.
std::set<StageId> given_stages(const Candidate& candidate, const StageChoice& choice, const StageFlag& flag) {
  return resolve_stages(choice, flag, num_stages(candidate), [] { return std::set<StageId>(); });
}

/// Chooses the blocks or stages that recompute or offload, by the order of ops (peaks_by_order), and prepares the
/// candidate with them; `by_stage`: only whole stages. Returns nullopt if no choice fits. The first prepare() already
/// has the given stages; a second one is needed only if `auto` adds some.
std::optional<PlannedSchedule> fit_in_memory(Predictor& predictor, Candidate& candidate, const PlanOptions& options,
                                             bool by_stage, double memory) {
  candidate.blocks = options.recompute.counts_blocks() ? options.recompute : StageChoice();
  candidate.recompute = given_stages(candidate, options.recompute, kRecomputeFlag);
  candidate.offload = given_stages(candidate, options.offload, kOffloadFlag);
  candidate.offload_blocks = options.offload.rule == StageRule::Counted ? options.offload : StageChoice();
  PlannedSchedule planned = predictor.prepare(candidate);
  const auto model = [&](const std::vector<StageLayers>& cut) {
    return stage_model(predictor.problem(), candidate, *planned.schedule, cut);
  };
  // With `auto` for both flags, the Planner calls this with one of them at a time.
  if (options.offload.rule == StageRule::Auto) {
    const auto offload = blocks_to_offload(*planned.schedule, planned.partition, candidate.recompute, memory, model);
    if (!offload) return std::nullopt;
    candidate.offload = given_stages(candidate, *offload, kOffloadFlag);
    if (offload->rule == StageRule::Counted) candidate.offload_blocks = *offload;
    return candidate.offload.empty() ? planned : predictor.prepare(candidate);
  }
  if (options.recompute.rule != StageRule::Auto) {
    const auto peaks = peaks_by_order(*planned.schedule, planned.model, candidate.recompute);
    return *std::ranges::max_element(peaks) <= memory ? std::optional(std::move(planned)) : std::nullopt;
  }
  if (!options.recompute_all && !by_stage) {
    const auto blocks = blocks_to_recompute(*planned.schedule, planned.partition, memory, model);
    if (!blocks) return std::nullopt;
    candidate.blocks = *blocks;
    return blocks->counts_blocks() ? predictor.prepare(candidate) : planned;
  }
  const auto stages = stages_to_recompute(*planned.schedule, planned.model, memory);
  if (!stages) return std::nullopt;
  if (stages->empty()) return planned;
  candidate.recompute = options.recompute_all ? all_stages(planned.schedule->stages) : *stages;
  return predictor.prepare(candidate);
}

/// Returns the partition that balance() finds with the machine's times and the problem's memory, in about 10^5
/// simulated ops, if all blocks recompute at `level`. Empty if nothing fits or the result equals the candidate's own
/// partition.
std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate, RecomputeLevel level) {
  constexpr std::int64_t kOps = 100'000;
  const PlannedSchedule planned = predictor.prepare(candidate);
  const std::int64_t stages = planned.schedule->stages;
  if (stages < 2) return std::nullopt;
  const BalanceOptions most{.memory = predictor.problem().memory_bytes - predictor.problem().machine.reserved.all(),
                            .recompute = !candidate.recompute.empty(),
                            .candidates = 100,
                            .steps = 3};
  const ModelLoads loads = machine_loads(predictor.problem(), candidate, planned.schedule->micro_batch_scale, level);
  const auto found = balance(*planned.schedule, loads, limit_ops(most, *planned.schedule, kOps));
  if (!found) return std::nullopt;
  const auto cut = explicit_partition(found->layers, predictor.problem().model.layers, stages);
  if (to_text(cut) == to_text(planned.partition)) return std::nullopt;
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
        kept_(tries_balanced(options) || options.recompute.rule == StageRule::Auto ? std::max(top_, kToImprove)
                                                                                   : top_) {
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
    if (options_.recompute.rule == StageRule::Auto) add_blocks(order);
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

  /// Choosing blocks takes longer than choosing stages, so blocks are tried for the best candidates, or if nothing
  /// fits.
  void add_blocks(const std::vector<std::pair<double, const Candidate*>>& order) {
    tries_blocks_ = true;
    const PlanOptions& options = options_.offload.rule == StageRule::Auto ? recomputing_ : options_;
    std::vector<RankedCandidate> rows = plan_.ranked;
    if (rows.size() > kept_) rows.resize(kept_);
    for (const RankedCandidate& each : rows) {
      Candidate candidate = each.candidate;
      if (!candidate.recompute.empty()) (void)try_out(candidate, limit(), options);
    }
    for (std::size_t i = 0; rows.empty() && i < order.size(); ++i) {
      Candidate candidate = *order[i].second;
      if (try_out(candidate, limit(), options) == Outcome::Ranked) --plan_.too_large;
    }
  }

  /// Balancing costs many simulations, so only the best even candidates are balanced.
  void add_balanced() {
    std::vector<RankedCandidate> even = plan_.ranked;
    if (even.size() > kept_) even.resize(kept_);
    for (const RankedCandidate& each : even) {
      double seconds = kFaster * each.prediction.step_seconds;
      std::set<std::vector<std::int64_t>> tried;
      for (const RecomputeLevel level : {RecomputeLevel::None, RecomputeLevel::Cheap}) {
        if (level == RecomputeLevel::Cheap && !each.candidate.blocks.counts_blocks()) continue;
        const auto cut = balanced_cut(predictor_, each.candidate, level);
        if (!cut || !tried.insert(cut->layers).second) continue;
        Candidate candidate = each.candidate;
        candidate.partition = *cut;
        (void)try_out(candidate, std::min(limit(), seconds));
      }
    }
  }

  /// Returns whether memory made the planner save some, or nothing helped.
  [[nodiscard]] bool is_short(const Candidate& candidate, Outcome outcome) const {
    return outcome == Outcome::TooLarge ||
           (options_.recompute.rule == StageRule::Auto && recompute_choice(candidate).rule != StageRule::None) ||
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
    if (options_.recompute.rule != StageRule::Auto) return try_out(candidate, seconds, options_);
    if (options_.offload.rule != StageRule::Auto) return try_recomputing(candidate, seconds, options_);
    const Outcome offloading = try_out(candidate, seconds, offloading_);
    if (offloading != Outcome::TooLarge && candidate.offload.empty()) return offloading;
    return std::min(offloading, try_recomputing(candidate, std::min(seconds, limit()), recomputing_));
  }

  /// Blocks need less time than whole stages. But a whole stage may run again before its gradient comes, and keeps
  /// less.
  Outcome try_recomputing(Candidate& candidate, double seconds, const PlanOptions& options) {
    if (!tries_blocks_) return try_out(candidate, seconds, options, /*by_stage=*/true);
    const Outcome blocks = try_out(candidate, seconds, options);
    if (blocks != Outcome::TooLarge && !candidate.blocks.counts_blocks()) return blocks;
    if (plan_.ranked.empty()) return blocks;  // Whole stages have been tried for all candidates, and none fits
    Candidate whole = candidate;
    const Outcome stages = try_out(whole, std::min(seconds, limit()), options, /*by_stage=*/true);
    if (stages < blocks) candidate = whole;
    return std::min(blocks, stages);
  }

  /// Recomputation or offloading is first chosen by the order of ops. If waiting messages then exceed the memory,
  /// `memory` decreases until enough stages are chosen.
  Outcome try_out(Candidate& candidate, double seconds, const PlanOptions& options, bool by_stage = false) {
    throw_if_interrupted();
    if (options_.progress) options_.progress(++tried_);
    double memory = predictor_.problem().memory_bytes;
    while (const auto planned = fit_in_memory(predictor_, candidate, options, by_stage, memory)) {
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
  std::size_t kept_;  // number to keep until they are improved
  std::int64_t tried_ = 0;
  bool tries_blocks_ = false;
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

/// Returns the largest power of two that divides `share` and fits with D micro-batches in flight, or 0.
std::int64_t largest_that_fits(Predictor& predictor, Candidate candidate, std::int64_t share) {
  // The paper fixes N = D while it looks for the size: more micro-batches then come for free.
  std::int64_t largest = 0;
  const std::int64_t depth = candidate.shape.stages;
  for (std::int64_t size = 1; share % size == 0; size *= 2) {
    candidate.micro_batch_size = size;
    candidate.shape.micro_batches = depth;
    const PlannedSchedule planned = predictor.prepare(candidate);
    const auto peaks = peaks_by_order(*planned.schedule, planned.model, candidate.recompute);
    if (*std::ranges::max_element(peaks) > predictor.problem().memory_bytes) break;
    largest = size;
  }
  return largest;
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

// The paper's own way to choose W, D and the micro-batch size, without a simulator: `chimera plan --rule paper`. It is
// kept beside make_plan() to show how far the two choices differ.
Plan plan_by_paper_rule(Predictor& predictor, std::int64_t top) {
  const PlanProblem& problem = predictor.problem();
  Plan plan;
  const Generator& paper = find_generator(kPaperSchedule);
  for (std::int64_t depth = 1; depth <= std::min(problem.workers, problem.model.layers); ++depth) {
    if (paper.find_shape_error({.stages = depth, .micro_batches = depth})) continue;
    const std::int64_t groups = problem.workers / depth;
    if (problem.workers % depth != 0 || problem.mini_batch % groups != 0) continue;
    ++plan.considered;
    const std::int64_t share = problem.mini_batch / groups;
    Candidate candidate{.schedule = kPaperSchedule, .shape = {.stages = depth}, .data_parallel = groups};
    candidate.micro_batch_size = largest_that_fits(predictor, candidate, share);
    // Recomputation is the paper's second choice, if not even one sequence fits.
    if (candidate.micro_batch_size == 0) {
      candidate.recompute = all_stages(depth);
      candidate.micro_batch_size = largest_that_fits(predictor, candidate, share);
    }
    if (candidate.micro_batch_size == 0) {
      ++plan.too_large;
      continue;
    }
    candidate.shape.micro_batches = share / candidate.micro_batch_size;
    plan.ranked.push_back({candidate, predictor.predict(candidate)});
  }
  if (plan.considered == 0) {
    reject(
        "{} workers, mini-batch {}: the paper's rule needs W x D = {} with a D of schedule {} ({}), at most the {} "
        "layers of {}, and W dividing the mini-batch",
        problem.workers, problem.mini_batch, problem.workers, paper.name, paper.constraints, problem.model.layers,
        problem.model.name);
  }
  if (plan.ranked.empty()) {
    reject(
        "{}: by the paper's rule nothing fits in {:.4g} GiB a worker, not even one sequence recomputed; give more "
        "--memory or --workers",
        problem.model.name, problem.memory_bytes / kGiB);
  }
  // By equation 1, not by the simulation.
  std::ranges::stable_sort(plan.ranked, {}, [](const RankedCandidate& each) { return each.prediction.paper->seconds; });
  if (top > 0 && plan.ranked.size() > static_cast<std::size_t>(top)) {
    plan.pruned = static_cast<std::int64_t>(plan.ranked.size()) - top;
    plan.ranked.resize(static_cast<std::size_t>(top));
  }
  return plan;
}

}  // namespace chimera
