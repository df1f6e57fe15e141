// Search::run() spends most of the budget on the problem itself, and the rest on the same problem under lower memory
// limits, for the Pareto front (sweep_lower_limits()). Both go through solve(): a lower bound, starts from generators
// and list schedules, a better bound, and then rounds of several Searchers, which exchange their best orders after each
// round. Whenever a bound proves the best order optimal, solve() returns early.

#include "search/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <future>

#include "check/check_schedule.h"
#include "core/cgroup.h"
#include "core/error.h"
#include "search/annealing.h"
#include "search/branch_and_bound.h"
#include "search/budget.h"
#include "search/evaluator.h"
#include "search/instance.h"
#include "search/list_scheduling.h"
#include "search/makespan_bound.h"
#include "search/problem_forms.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

void require_costs(const Instance& instance) {
  double sum = 0;
  for (const OpQueue& queue : instance.queues) sum += queue.count * (queue.duration + queue.delay);
  if (!std::isfinite(sum)) throw ConfigError("search: the costs are too large to add up; use a larger unit of time");
}

/// Returns whether the search's timing equals simulate()'s: only ops, and messages without contention.
bool is_plain(const CostModel& costs) {
  return !costs.links && !costs.all_reduce && costs.optimizer.empty() && !costs.blocking_sends;
}

/// Does not depend on the number of cores, so that equal seeds give equal results.
constexpr int kSearchers = 2;
static_assert(kSearchers == 2, "one digit tells the parts of the tree apart");
static_assert(kMaxExactOps <= kMaxNarrowedOps, "what is searched exactly has a state to begin with");

/// One of several independent searches for a faster schedule, with seeds of their own. Searchers share nothing during a
/// round; after it, Search merges their results and learn() gives the best ones to all. A round first improves orders
/// by simulated annealing: the symmetric orders of the folded problem if there is one (problem_forms.h), then the
/// orders of all workers. If the problem is small enough, it then searches its part of the tree of orders exactly
/// (branch_and_bound.h). Holds a reference to the forms.
class Searcher {
 public:
  /// `number`, from 0 to kSearchers - 1, selects the part of the tree. `makespan` is the makespan of a known schedule,
  /// and `state` holds facts that are true of every faster schedule; both are the same for all searchers. `goal` is a
  /// lower bound of the makespan.
  Searcher(const ProblemForms& forms, double goal, double makespan, const WindowState& state, int number,
           std::uint64_t seed)
      : forms_(forms), goal_(goal), random_(seed) {
    if (can_be_exact(forms.whole)) exact_.emplace(forms.whole, makespan, state, number, 1);
  }

  void learn(const Solution& symmetric, const Solution& whole) {
    replace_if_better(symmetric_, symmetric);
    replace_if_better(whole_, whole);
  }

  /// Searches until the budget is used, the goal is reached, or its part of the tree is exhausted.
  void run(Budget& budget) {
    const Phase phase(budget);
    const bool goes_on = exact_ && !exhausted_;
    search_locally(goes_on ? Phase(phase, kShareBeforeExact) : phase);
    if (goes_on && whole_.makespan > goal_) search_exactly(phase);
  }

  /// Returns the best orders of the folded problem, if the forms has one.
  [[nodiscard]] const Solution& symmetric() const { return symmetric_; }
  /// Returns the best orders of all workers.
  [[nodiscard]] const Solution& whole() const { return whole_; }
  [[nodiscard]] const ParetoFront& front() const { return front_; }
  /// Returns whether its part of the tree contains no order better than whole().
  [[nodiscard]] bool exhausted() const { return exhausted_; }

 private:
  // Fractions of the remaining time.
  static constexpr double kShareBeforeExact = 0.3;
  static constexpr double kShareOfSymmetric = 0.7;

  void search_locally(const Phase& phase) {
    if (forms_.folded && whole_.makespan > goal_) {
      const FoldedProblem& folded = *forms_.folded;
      improve(folded.instance, symmetric_, Phase(phase, kShareOfSymmetric));
      Solution unfolded = symmetric_;
      unfolded.orders = unfold(forms_.problem, folded, symmetric_.orders);
      replace_if_better(whole_, unfolded);
    }
    improve(forms_.whole, whole_, Phase(phase, 1));
  }

  void improve(const Instance& instance, Solution& best, Phase phase) {
    best = anneal(instance, best, goal_, phase, random_,
                  [&](const Solution& better) { note(front_, forms_, instance, better); });
  }

  void search_exactly(Phase phase) {
    const double before = whole_.makespan;
    exhausted_ = exact_->run(whole_, phase);
    if (whole_.makespan < before) note(front_, forms_, forms_.whole, whole_);
  }

  const ProblemForms& forms_;
  double goal_;
  RandomSource random_;
  std::optional<BranchAndBound> exact_;
  bool exhausted_ = false;
  Solution symmetric_;
  Solution whole_;
  ParetoFront front_;
};

class Search {
 public:
  Search(const SearchProblem& problem, const std::vector<Schedule>& starts, const SearchOptions& options)
      : problem_(problem), starts_(starts), options_(options) {}

  SearchResult run() {
    lower_bound_ = std::max(lower_bound_, solve(problem_, Phase(budget_, options_.wants_front ? kShareOfProblem : 1)));
    if (options_.wants_front) sweep_lower_limits();
    return result();
  }

 private:
  /// Returns the lower bound: the best makespan if proven.
  double solve(const SearchProblem& problem, Phase phase) {
    const ProblemForms forms(problem);
    const double bound = bound_of(forms);
    const double goal = bound * (1 + kRounding);
    Solution whole = best_start(forms);
    list_schedules(forms, forms.whole, whole, goal, Phase(phase, forms.folded ? kShareOfLists / 2 : kShareOfLists));
    Solution symmetric = forms.folded ? best_symmetric(forms, whole, goal, phase) : Solution();
    if (whole.makespan <= goal || phase.is_over()) return bound;
    const RaisedBound raised = raise(forms, bound, whole.makespan, Phase(phase, kShareOfBound));
    if (whole.makespan <= raised.bound * (1 + kRounding)) return raised.bound;
    return search_together(forms, raised, symmetric, whole, phase);
  }

  RaisedBound raise(const ProblemForms& forms, double bound, double makespan, Phase phase) const {
    const auto run = [&] { return raise_bound(forms.whole, bound, makespan, phase); };
    if (available_cores() <= 1) return run();
    auto running = std::async(std::launch::async, run);
    report_until_ready(running);
    return running.get();
  }

  /// Each round takes twice as long as the last. Returns the lower bound: the best makespan if proven.
  double search_together(const ProblemForms& forms, const RaisedBound& raised, Solution symmetric, Solution whole,
                         const Phase& phase) {
    const double goal = raised.bound * (1 + kRounding);
    std::deque<Searcher> searchers;
    for (int i = 0; i < kSearchers; ++i)
      searchers.emplace_back(forms, goal, whole.makespan, raised.state, i, random_.seed());
    // Short rounds first: an early exchange of good orders between searchers helps most.
    for (int round = kRounds; round > 0 && !phase.is_over() && whole.makespan > goal; --round) {
      for (Searcher& each : searchers) each.learn(symmetric, whole);
      // The shares 1/31, 1/15, 1/7, 1/3 and 1 of what is left make each round twice as long as the one before.
      run_all(searchers, Phase(phase, 1.0 / ((1 << round) - 1)));
      for (const Searcher& each : searchers) {
        replace_if_better(symmetric, each.symmetric());
        replace_if_better(whole, each.whole());
        for (const ParetoSolution& find : each.front().solutions())
          if (front_.admits(find.makespan, find.peak)) front_.add(find);
      }
      report();
      if (std::ranges::all_of(searchers, &Searcher::exhausted)) return whole.makespan;
    }
    return raised.bound;
  }

  void run_all(std::deque<Searcher>& searchers, Phase phase) const {
    std::vector<Budget> budgets;
    if (available_cores() > 1) {
      budgets.assign(searchers.size(), phase.for_one_of(kSearchers, 1));
      run_at_once(searchers, budgets);
    } else {
      for (int i = 0; i < kSearchers; ++i) {
        // One after the other: time that a searcher does not use goes to those behind it.
        budgets.push_back(phase.for_one_of(kSearchers, kSearchers - i));
        searchers[static_cast<std::size_t>(i)].run(budgets.back());
      }
    }
    for (const Budget& budget : budgets) phase.count(budget.counted());
  }

  void run_at_once(std::deque<Searcher>& searchers, std::vector<Budget>& budgets) const {
    std::atomic<bool> is_stopped = false;
    std::vector<std::future<void>> running;  // destructors wait for the threads
    for (std::size_t i = 0; i < searchers.size(); ++i) {
      budgets[i].stop_when(is_stopped);
      running.push_back(std::async(std::launch::async, [&, i] { searchers[i].run(budgets[i]); }));
    }
    try {
      for (auto& each : running) {
        report_until_ready(each);
        each.get();
      }
    } catch (...) {
      is_stopped = true;
      throw;
    }
  }

  template <typename Result>
  void report_until_ready(std::future<Result>& running) const {
    constexpr std::chrono::milliseconds kBetweenReports{100};
    while (running.wait_for(kBetweenReports) != std::future_status::ready) report();
  }

  /// Takes the larger of two bounds: least_makespan() uses the limits; simulate()'s holds for every order of a
  /// schedule's ops, and includes costs that the search omits.
  double bound_of(const ProblemForms& forms) {
    const double bound = least_makespan(forms.whole);
    RandomSource random(0);
    const Orders orders = orders_by_rule(forms.whole, {}, random);
    const Timeline timeline = simulate(to_schedule(forms.problem, orders), forms.problem.costs);
    // Only the bound of the first problem holds for all orders: later problems have a lower limit on memory, which is
    // in their bound. simulate()'s ignores memory.
    lower_bound_ = std::max({lower_bound_, front_.solutions().empty() ? bound : 0, timeline.lower_bound});
    return is_plain(forms.problem.costs) ? std::max(bound, timeline.lower_bound) : bound;
  }

  /// List scheduling adapts starts that exceed a limit.
  Solution best_start(const ProblemForms& forms) {
    Solution best;
    Evaluator evaluator(forms.whole);
    const auto consider = [&](const Orders& orders, const std::string& origin) {
      const double makespan = evaluator.makespan(orders);
      if (is_admissible(forms.whole, orders)) {
        take(forms, best, {orders, makespan, origin});
        return;
      }
      if (makespan == kDeadlocked) return;
      for (const double window : kWindowsAfterModel) {
        ListRule rule;
        rule.window = window;
        rule.model = evaluator.ends();
        Orders within = orders_by_rule(forms.whole, rule, random_);
        const double time = Evaluator(forms.whole).makespan(within);
        take(forms, best, {std::move(within), time, "list scheduling after " + origin});
      }
    };
    for (const Schedule& start : starts_) consider(to_orders(forms.problem, start), start.name);
    if (!front_.solutions().empty()) {
      const ParetoSolution fastest = front_.solutions().front();
      consider(fastest.orders, fastest.origin);
    }
    return best;
  }

  void take(const ProblemForms& forms, Solution& best, const Solution& found) {
    budget_.count();
    note(forms, forms.whole, found);
    replace_if_better(best, found);
  }

  void list_schedules(const ProblemForms& forms, const Instance& instance, Solution& best, double goal, Phase phase) {
    Evaluator evaluator(instance);
    ListRule rule;
    do {
      phase.count();
      Orders orders = orders_by_rule(instance, rule, random_);
      const double makespan = evaluator.makespan(orders);
      const Solution found{std::move(orders), makespan, "list scheduling"};
      note(forms, instance, found);
      report();
      replace_if_better(best, found);
      rule = random_rule(instance, random_);
    } while (!phase.is_over() && best.makespan > goal);
  }

  /// Returns the best symmetric orders: list schedules, or folded from `whole`.
  Solution best_symmetric(const ProblemForms& forms, const Solution& whole, double goal, const Phase& phase) {
    const Instance& instance = forms.folded->instance;
    Solution best;
    list_schedules(forms, instance, best, goal, Phase(phase, kShareOfLists));
    const Orders orders = fold_orders(forms.problem, *forms.folded, whole.orders);
    if (is_admissible(instance, orders))
      replace_if_better(best, {orders, Evaluator(instance).makespan(orders), whole.origin});
    return best;
  }

  void note(const ProblemForms& forms, const Instance& instance, const Solution& found) {
    if (chimera::note(front_, forms, instance, found)) report();
  }

  void report() const {
    if (!options_.progress || front_.solutions().empty()) return;
    const ParetoSolution& best = front_.solutions().front();
    options_.progress({budget_.seconds(), best.makespan, lower_bound_, best.origin});
  }

  /// Solves the problem again with less and less memory for activations, for the rest of the Pareto front. Results of
  /// earlier limits are in the front and serve as starts.
  void sweep_lower_limits() {
    const double unit = units_of_slice(problem_.layout);
    const double least = least_peak();
    const double highest = front_.solutions().front().peak - unit;
    const double steps = std::floor((highest - least) / unit + kRounding) + 1;
    const auto limits = static_cast<int>(std::min<double>(kMaxLimits, steps));
    const Phase sweep(budget_, std::min(1.0, (1 - kShareOfProblem) / std::max(kRounding, 1 - budget_.used())));
    for (int i = 0; i < limits; ++i) {
      const double step = std::floor(steps * i / limits);
      SearchProblem problem = problem_;
      problem.limits.push_back(limit_in_flight(problem_.layout, highest - unit * step, "the Pareto front"));
      (void)solve(problem, Phase(sweep, 1.0 / (limits - i)));
    }
  }

  /// Peak stage units of a single micro-batch, a minimum for every schedule.
  double least_peak() const {
    double least = 0;
    for (const auto& row : problem_.layout.placement.worker_of) {
      std::vector<double> held(static_cast<std::size_t>(problem_.layout.workers), 0);
      for (const WorkerId worker : row)
        least = std::max(least, held[worker.index()] += units_of_stage(problem_.layout));
    }
    return least;
  }

  /// Times all finds by simulate(), which knows costs that the search omits. That can change their order.
  ParetoFront timed_finds() const {
    ParetoFront timed;
    for (ParetoSolution find : front_.solutions()) {
      find.makespan = simulate(to_schedule(problem_, find.orders), problem_.costs).makespan;
      if (timed.admits(find.makespan, find.peak)) timed.add(std::move(find));
    }
    return timed;
  }

  SearchResult result() const {
    const ParetoFront timed = timed_finds();
    const ParetoSolution& best = timed.solutions().front();
    SearchResult result;
    result.schedule = to_schedule(problem_, best.orders);
    const auto violations = check(result.schedule);
    if (!violations.empty()) throw ScheduleError("search found an invalid schedule: " + violations.front().message);
    result.makespan = best.makespan;
    result.set_lower_bound(lower_bound_);
    result.peak_in_flight = best.peak;
    result.origin = best.origin;
    for (const ParetoSolution& find : timed.solutions())
      result.pareto.push_back({find.makespan, find.peak, find.origin});
    return result;
  }

  static constexpr int kMaxLimits = 8;
  static constexpr int kRounds = 5;
  static constexpr std::array<double, 2> kWindowsAfterModel = {0, 1};
  // Fractions of the remaining time.
  static constexpr double kShareOfProblem = 0.75;
  static constexpr double kShareOfLists = 0.1;
  static constexpr double kShareOfBound = 0.3;

  const SearchProblem& problem_;
  const std::vector<Schedule>& starts_;
  const SearchOptions& options_;
  Budget budget_{options_.seconds, options_.iterations};
  RandomSource random_{options_.seed};
  ParetoFront front_;
  double lower_bound_ = 0;
};

}  // namespace

SearchResult search(const SearchProblem& problem, const std::vector<Schedule>& starts, const SearchOptions& options) {
  require_room(problem);
  require_costs(make_instance(problem));
  return Search(problem, starts, options).run();
}

}  // namespace chimera
