#include <algorithm>

#include "core/reject.h"
#include "generate/registry.h"
#include "plan/plan.h"
#include "plan/worker_memory.h"

// The paper's own way to choose W, D and the micro-batch size, without a simulator: `chimera plan --rule paper`. It is
// kept beside make_plan() to show how far the two choices differ.

namespace chimera {
namespace {

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
