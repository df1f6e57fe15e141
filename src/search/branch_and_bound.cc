#include "search/branch_and_bound.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "search/lower_bound.h"

namespace chimera {
namespace {

struct Candidate {
  LaneIndex lane = kNoLane;
  double start = 0;
  double end = 0;
};

/// States met before, by the ops that are done in them.
class MetStates {
 public:
  /// Whether a state with the same ops done was no later in anything; remembers this one if not.
  bool cover(const std::vector<std::int32_t>& done, const std::vector<double>& times) {
    key_.assign(done.begin(), done.end());
    auto& met = states_[key_];
    const auto no_later = [](double a, double b) { return a <= b + kRounding; };
    for (const auto& other : met) {
      if (std::equal(other.begin(), other.end(), times.begin(), no_later)) return true;
    }
    if (numbers_ > kMostNumbers) return false;
    numbers_ += times.size();
    met.push_back(times);
    return false;
  }

 private:
  static constexpr std::size_t kMostNumbers = 10'000'000;
  std::string key_;  // one byte a lane
  std::unordered_map<std::string, std::vector<std::vector<double>>> states_;
  std::size_t numbers_ = 0;
};

class BranchAndBound {
 public:
  BranchAndBound(const Instance& instance, Solution start, Phase phase)
      : instance_(instance),
        phase_(phase),
        bound_(instance),
        best_(std::move(start)),
        orders_(static_cast<std::size_t>(instance.workers)),
        done_(instance.lanes.size(), 0),
        barred_(instance.lanes.size(), false),
        end_(static_cast<std::size_t>(instance.ops)),
        free_(orders_.size(), 0),
        held_(instance.size.size(), std::vector<double>(orders_.size(), 0)) {}

  ExactResult run() {
    explore(instance_.ops);
    return {std::move(best_), !cut_short_};
  }

 private:
  void explore(std::int32_t left) {
    if (phase_.over()) cut_short_ = true;
    if (cut_short_) return;
    phase_.count();
    if (left == 0) return take_as_best();
    if (bound_.after(done_, end_, free_) >= best_.makespan * (1 - kRounding)) return;
    if (num_barred_ == 0 && met_.cover(done_, times_that_matter())) return;
    const std::vector<Candidate> conflict = first_conflict();
    for (const Candidate& candidate : conflict) run_and_explore(candidate, left);
    if (!conflict.empty() && waiting_may_help(conflict.front())) wait_and_explore(conflict, left);
  }

  void take_as_best() {
    const double makespan = *std::max_element(free_.begin(), free_.end());
    if (makespan < best_.makespan * (1 - kRounding)) best_ = {orders_, makespan};
  }

  /// The lane's next op, if it may be the worker's next.
  bool find_candidate(std::size_t index, Candidate& candidate) const {
    const Lane& lane = instance_.lanes[index];
    const auto worker = static_cast<std::size_t>(lane.worker);
    const std::int32_t k = done_[index];
    if (k >= lane.count || barred_[index]) return false;
    if (index % kLanesOfChain != kForwardStep && done_[index - 1] <= k) return false;
    candidate = {static_cast<LaneIndex>(index), free_[worker], 0};
    if (lane.input != kNoLane) {
      const auto input = static_cast<std::size_t>(lane.input);
      if (done_[input] <= k) return false;
      candidate.start = std::max(candidate.start, end_[op_of(input, k)] + lane.delay);
    }
    candidate.end = candidate.start + lane.duration;
    return !lane.takes || has_room(worker, index / kLanesOfChain);
  }

  std::size_t op_of(std::size_t lane, std::int32_t k) const {
    return static_cast<std::size_t>(instance_.lanes[lane].first + k);
  }

  bool has_room(std::size_t worker, std::size_t chain) const {
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      if (held_[limit][worker] + instance_.size[limit][chain] > instance_.room[limit][worker] + kRounding) return false;
    }
    return true;
  }

  /// The op that would end first of all, and after it those that its worker could start before that end. Of ops that
  /// would end together, a forward comes last: it asks for one branch more.
  std::vector<Candidate> first_conflict() const {
    std::vector<Candidate> all;
    Candidate candidate;
    for (std::size_t index = 0; index < instance_.lanes.size(); ++index) {
      if (find_candidate(index, candidate)) all.push_back(candidate);
    }
    if (all.empty()) return all;
    const auto ends_first = [this](const Candidate& a, const Candidate& b) {
      if (a.end != b.end) return a.end < b.end;
      return !lane(a.lane).takes && lane(b.lane).takes;
    };
    const Candidate first = *std::min_element(all.begin(), all.end(), ends_first);
    std::vector<Candidate> conflict = {first};
    for (const Candidate& other : all) {
      if (other.lane == first.lane || lane(other.lane).worker != lane(first.lane).worker) continue;
      if (other.start < first.end) conflict.push_back(other);
    }
    return conflict;
  }

  /// Whether leaving the op (and all in conflict with it) for later can be better than starting it.
  bool waiting_may_help(const Candidate& first) const {
    if (!lane(first.lane).takes) return false;
    const auto worker = static_cast<std::size_t>(lane(first.lane).worker);
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      double all = held_[limit][worker];
      for (const std::int32_t index : instance_.chains[worker]) {
        const auto chain = static_cast<std::size_t>(index);
        const std::size_t forward = kLanesOfChain * chain + kForwardStep;
        all += (instance_.lanes[forward].count - done_[forward]) * instance_.size[limit][chain];
      }
      if (all > instance_.room[limit][worker] + kRounding) return true;
    }
    return false;
  }

  void hold(std::size_t index, std::int32_t by) {
    const Lane& lane = instance_.lanes[index];
    const std::int32_t change = (lane.takes ? by : 0) - (lane.releases ? by : 0);
    for (std::size_t limit = 0; limit < held_.size(); ++limit) {
      held_[limit][static_cast<std::size_t>(lane.worker)] += change * instance_.size[limit][index / kLanesOfChain];
    }
  }

  void run_and_explore(const Candidate& candidate, std::int32_t left) {
    const auto index = static_cast<std::size_t>(candidate.lane);
    const auto worker = static_cast<std::size_t>(instance_.lanes[index].worker);
    const double free_before = free_[worker];
    const std::vector<std::size_t> barred_before = take_bars_from(worker);
    end_[op_of(index, done_[index])] = candidate.end;
    free_[worker] = candidate.end;
    ++done_[index];
    hold(index, 1);
    orders_[worker].push_back(candidate.lane);
    explore(left - 1);
    orders_[worker].pop_back();
    hold(index, -1);
    --done_[index];
    free_[worker] = free_before;
    for (const std::size_t lane : barred_before) bar(lane, true);
  }

  /// Bars the ops in conflict from being the worker's next.
  void wait_and_explore(const std::vector<Candidate>& conflict, std::int32_t left) {
    for (const Candidate& candidate : conflict) bar(static_cast<std::size_t>(candidate.lane), true);
    explore(left);
    for (const Candidate& candidate : conflict) bar(static_cast<std::size_t>(candidate.lane), false);
  }

  void bar(std::size_t lane, bool barred) {
    num_barred_ += (barred ? 1 : 0) - (barred_[lane] ? 1 : 0);
    barred_[lane] = barred;
  }

  std::vector<std::size_t> take_bars_from(std::size_t worker) {
    std::vector<std::size_t> taken;
    if (num_barred_ == 0) return taken;
    for (const std::int32_t chain : instance_.chains[worker]) {
      for (LaneIndex lane = kLanesOfChain * chain; lane < kLanesOfChain * (chain + 1); ++lane) {
        if (barred_[static_cast<std::size_t>(lane)]) taken.push_back(static_cast<std::size_t>(lane));
      }
    }
    for (const std::size_t lane : taken) bar(lane, false);
    return taken;
  }

  /// When each worker is free, and when each result that is still needed can be used.
  std::vector<double> times_that_matter() const {
    std::vector<double> times = free_;
    for (std::size_t index = 0; index < instance_.lanes.size(); ++index) {
      const Lane& consumer = instance_.lanes[index];
      if (consumer.input == kNoLane) continue;
      const auto input = static_cast<std::size_t>(consumer.input);
      for (std::int32_t k = done_[index]; k < done_[input]; ++k) {
        times.push_back(
            std::max(end_[op_of(input, k)] + consumer.delay, free_[static_cast<std::size_t>(consumer.worker)]));
      }
    }
    return times;
  }

  const Lane& lane(LaneIndex index) const { return instance_.lanes[static_cast<std::size_t>(index)]; }

  const Instance& instance_;
  Phase phase_;
  LowerBound bound_;
  Solution best_;
  Orders orders_;                   // so far
  std::vector<std::int32_t> done_;  // [lane]
  std::vector<bool> barred_;        // [lane]: not to be the worker's next op
  int num_barred_ = 0;
  std::vector<double> end_;                // [op]
  std::vector<double> free_;               // [worker]
  std::vector<std::vector<double>> held_;  // [limit][worker]
  MetStates met_;
  bool cut_short_ = false;
};

}  // namespace

ExactResult branch_and_bound(const Instance& instance, Solution start, Phase phase) {
  return BranchAndBound(instance, std::move(start), phase).run();
}

}  // namespace chimera
