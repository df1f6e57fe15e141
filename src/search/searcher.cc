#include "search/searcher.h"

#include <utility>

#include "search/makespan_bound.h"

namespace chimera {
namespace {

constexpr const char* kLocalSearch = "local search from ";
// Fractions of the remaining time.
constexpr double kShareBeforeExact = 0.3;
constexpr double kShareOfSymmetric = 0.7;
static_assert(kMostExactOps <= kMostNarrowedOps, "what is searched exactly has a state to begin with");
static_assert(kSearchers == 2, "one digit tells the parts of the tree apart");

}  // namespace

Searcher::Searcher(const Arrangement& arrangement, double goal, double makespan, const WindowState& state, int number,
                   std::uint64_t seed)
    : arrangement_(arrangement), goal_(goal), random_(seed) {
  if (can_be_exact(arrangement.whole)) exact_.emplace(arrangement.whole, makespan, state, number, 1);
}

void Searcher::learn(const Best& symmetric, const Best& whole) {
  take_if_better(symmetric_, symmetric);
  take_if_better(whole_, whole);
}

void Searcher::run(Budget& budget) {
  const Phase phase(budget);
  search_locally(exact_ && !exhausted_ ? Phase(phase, kShareBeforeExact) : phase);
  if (exact_ && !exhausted_ && whole_.solution.makespan > goal_) search_exactly(phase);
}

void Searcher::search_locally(const Phase& phase) {
  if (arrangement_.folded && whole_.solution.makespan > goal_) {
    const FoldedProblem& folded = *arrangement_.folded;
    improve(folded.instance, symmetric_, Phase(phase, kShareOfSymmetric));
    take_if_better(whole_,
                   {{unfold(arrangement_.problem, folded, symmetric_.solution.orders), symmetric_.solution.makespan},
                    symmetric_.origin});
  }
  improve(arrangement_.whole, whole_, Phase(phase, 1));
}

void Searcher::improve(const Instance& instance, Best& best, Phase phase) {
  const std::string origin =
      best.origin.starts_with(kLocalSearch) ? best.origin : std::string(kLocalSearch) + best.origin;
  const double before = best.solution.makespan;
  best.solution = anneal(instance, best.solution, goal_, phase, random_, [&](const Solution& solution) {
    note(front_, arrangement_, instance, {solution, origin});
  });
  if (best.solution.makespan < before) best.origin = origin;
}

void Searcher::search_exactly(Phase phase) {
  const double before = whole_.solution.makespan;
  exhausted_ = exact_->run(whole_.solution, phase);
  if (whole_.solution.makespan == before) return;
  whole_.origin = "branch and bound";
  note(front_, arrangement_, arrangement_.whole, whole_);
}

}  // namespace chimera
