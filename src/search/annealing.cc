// A move shifts one op within the order of its worker. It is checked only where it can break something
// (is_admissible()), then the orders of all workers are timed, and a move that is not accepted is undone. Only a new
// best order is copied.

#include "search/annealing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace chimera {
namespace {

// Prefix of Solution::origin, added once: a search that goes on from its own result keeps the origin.
const std::string kLocalSearch = "local search from ";

struct Move {
  std::size_t worker = 0;
  std::size_t from = 0;
  std::size_t to = 0;
};

void carry_out(Orders& orders, const Move& move) {
  const auto order = orders[move.worker].begin();
  const auto from = static_cast<std::ptrdiff_t>(move.from);
  const auto to = static_cast<std::ptrdiff_t>(move.to);
  if (from < to)
    std::rotate(order + from, order + from + 1, order + to + 1);
  else
    std::rotate(order + to, order + from, order + from + 1);
}

Move reverse(const Move& move) { return {move.worker, move.to, move.from}; }

class Annealing {
 public:
  Annealing(const Instance& instance, Solution start, RandomSource& random)
      : instance_(instance),
        random_(random),
        evaluator_(instance),
        orders_(start.orders),
        origin_(start.origin.starts_with(kLocalSearch) ? start.origin : kLocalSearch + start.origin),
        best_(std::move(start)) {}

  Solution run(double goal, Phase& phase, const std::function<void(const Solution&)>& improved) {
    best_.makespan = evaluator_.makespan(orders_);
    energy_ = energy(best_.makespan);
    double hot = kCold;
    for (bool first = true; best_.makespan > goal && !phase.is_over(); first = false) {
      const double temperature = hot * scale_ * std::pow(kCold / hot, phase.elapsed_fraction());
      for (int i = 0; i < kMovesPerTemperature; ++i) {
        phase.count();
        if (step(temperature)) improved(best_);
      }
      // The speed of a move is known after the first batch, which ran cold. So the start temperature fits the moves
      // that the phase still allows.
      if (first) hot = hottest(kMovesPerTemperature / std::max(phase.elapsed_fraction(), kRounding));
    }
    return std::move(best_);
  }

 private:
  double energy(double makespan) const { return makespan + kShareOfMeanEnd * evaluator_.mean_end(); }

  /// Start temperature for that many moves: enough of them must follow to cool down.
  double hottest(double moves) const {
    return std::max(kCold, kHot * std::min(1.0, moves / (kMovesToCoolAnOp * instance_.ops)));
  }

  /// Returns whether the move makes a new best.
  bool step(double temperature) {
    const Move move = draw();
    const auto& order = orders_[move.worker];
    if (order.empty() || order[move.from] == order[move.to]) return false;
    carry_out(orders_, move);
    const double makespan = is_admissible(move) ? evaluator_.makespan(orders_) : kDeadlocked;
    const double energy = makespan == kDeadlocked ? kDeadlocked : this->energy(makespan);
    // Metropolis' rule: an order that is worse by x is kept with probability exp(-x / temperature). Orders that
    // deadlock are infinitely worse, and never kept.
    if (energy > energy_ && !random_.chance(std::exp((energy_ - energy) / temperature))) {
      carry_out(orders_, reverse(move));
      return false;
    }
    energy_ = energy;
    if (makespan >= best_.makespan - kRounding * scale_) return false;
    best_ = {orders_, makespan, origin_};
    return true;
  }

  /// Draws a short move: most improvements shift an op past a few others.
  Move draw() {
    Move move;
    move.worker = random_.below(orders_.size());
    const auto size = orders_[move.worker].size();
    if (size < 2) return move;
    move.from = random_.below(size);
    std::size_t distance = 1;
    while (distance < kFarthest && random_.chance(kFarther)) ++distance;
    const bool later = random_.chance(0.5);
    move.to = later ? std::min(size - 1, move.from + distance) : move.from - std::min(move.from, distance);
    return move;
  }

  /// Checks only what the move can break: the order within the moved op's chain, and the worker's memory between both
  /// positions. Other ops keep their order. Whether ops wait for each other in a cycle shows when the orders are timed.
  bool is_admissible(const Move& move) const {
    const auto& order = orders_[move.worker];
    const auto begin = std::min(move.from, move.to);
    const auto end = std::max(move.from, move.to);
    const auto moved = chain(order[move.to]);
    std::array<std::int32_t, kQueuesOfChain> done{};
    for (std::size_t i = 0; i <= end; ++i) {
      if (chain(order[i]) != moved) continue;
      const auto step = static_cast<std::size_t>(order[i] % kQueuesOfChain);
      ++done[step];
      if (i >= begin && step != kForwardStep && done[step - 1] < instance_.needed(step, done[step] - 1)) return false;
    }
    for (std::size_t limit = 0; limit < instance_.size.size(); ++limit)
      if (!within(limit, order, begin, end, instance_.room[limit][move.worker] + kRounding)) return false;
    return true;
  }

  bool within(std::size_t limit, const std::vector<QueueIndex>& order, std::size_t begin, std::size_t end,
              double room) const {
    const auto& size = instance_.size[limit];
    double held = 0;
    for (std::size_t i = 0; i <= end; ++i) {
      const OpQueue& queue = instance_.queues[static_cast<std::size_t>(order[i])];
      const double change = size[chain(order[i])];
      if (queue.takes) held += change;
      if (i >= begin && held > room) return false;
      if (queue.releases) held -= change;
    }
    return true;
  }

  static std::size_t chain(QueueIndex index) { return static_cast<std::size_t>(index / kQueuesOfChain); }

  // Tuned on D = 8, N = 8 to 32 with two and four replicas; factors of two change little. Temperatures are in mean op
  // durations.
  static constexpr double kHot = 0.15;
  static constexpr double kCold = 0.0015;
  static constexpr double kMovesToCoolAnOp = 300;
  static constexpr double kShareOfMeanEnd = 0.02;
  static constexpr double kFarther = 0.6;  // chance of each further place
  static constexpr std::size_t kFarthest = 12;
  static constexpr int kMovesPerTemperature = 64;

  const Instance& instance_;
  RandomSource& random_;
  Evaluator evaluator_;
  double scale_ = mean_duration(instance_);
  Orders orders_;
  std::string origin_;  // of better orders
  Solution best_;
  double energy_ = 0;
};

}  // namespace

Solution anneal(const Instance& instance, Solution start, double goal, Phase phase, RandomSource& random,
                const std::function<void(const Solution&)>& improved) {
  return Annealing(instance, std::move(start), random).run(goal, phase, improved);
}

}  // namespace chimera
