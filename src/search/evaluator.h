#pragma once

// A fast simulator for the search, which times millions of orders in a run. simulate() models all kinds of cost and
// takes about 100 ns per op. Evaluator models only two rules: an op waits for its worker, and for its input plus a
// delay. It takes a few nanoseconds per op. Tests check that both agree for costs that both model, and the search
// reports only makespans of simulate(). A *queue* has the ops of the same kind, stage and replica, and a *chain*
// is the queues of one stage and replica (instance.h).

#include <algorithm>
#include <limits>
#include <numeric>

#include "search/instance.h"

namespace chimera {

/// Makespan of orders whose ops wait for each other in a cycle.
inline constexpr double kDeadlocked = std::numeric_limits<double>::infinity();

/// Orders of all workers, and their makespan.
struct Solution {
  Orders orders;  // [worker]: the queues of its ops, in order
  double makespan = kDeadlocked;
  std::string origin = {};  // how the orders were found: name of a generator or of a method of the search
};

/// Computes times of orders: each op starts as soon as its worker is free and its input has arrived. Borrows the
/// instance.
class Evaluator {
 public:
  explicit Evaluator(const Instance& instance)
      : instance_(instance),
        end_(static_cast<std::size_t>(instance.ops)),
        done_(instance.queues.size()),
        waiting_(instance.queues.size()),
        position_(static_cast<std::size_t>(instance.workers)),
        free_(static_cast<std::size_t>(instance.workers)) {}

  /// Returns the makespan of the orders, or kDeadlocked. Requires is_admissible() orders: on a worker, the k-th op of a
  /// queue comes after the k-th op of the previous queue of the same chain.
  double makespan(const Orders& orders) {
    std::fill(done_.begin(), done_.end(), 0);
    std::fill(waiting_.begin(), waiting_.end(), kNoWorker);
    std::fill(position_.begin(), position_.end(), 0);
    std::fill(free_.begin(), free_.end(), 0);
    runnable_.resize(orders.size());
    std::iota(runnable_.begin(), runnable_.end(), 0);
    while (!runnable_.empty()) {
      const std::size_t worker = runnable_.back();
      runnable_.pop_back();
      run(worker, orders[worker]);
    }
    for (std::size_t w = 0; w < orders.size(); ++w)
      if (position_[w] != orders[w].size()) return kDeadlocked;
    return *std::max_element(free_.begin(), free_.end());
  }
  /// Returns [op]: its end, after makespan().
  [[nodiscard]] const std::vector<double>& ends() const { return end_; }
  /// Returns the mean over workers of the end of their last op, after makespan().
  [[nodiscard]] double mean_end() const {
    return std::accumulate(free_.begin(), free_.end(), 0.0) / static_cast<double>(free_.size());
  }

 private:
  /// Runs the worker's ops until one lacks its input; then that input's queue remembers the worker. A queue has at most
  /// one consumer, so one waiting worker per queue suffices.
  void run(std::size_t worker, const std::vector<QueueIndex>& order) {
    std::size_t position = position_[worker];
    double time = free_[worker];
    for (; position < order.size(); ++position) {
      const auto index = static_cast<std::size_t>(order[position]);
      const OpQueue& queue = instance_.queues[index];
      const std::int32_t k = done_[index];
      if (queue.input != kNoQueue) {
        const auto input = static_cast<std::size_t>(queue.input);
        if (done_[input] <= k) {
          waiting_[input] = static_cast<std::int32_t>(worker);
          break;
        }
        const std::int32_t needed = instance_.queues[input].first + k;
        time = std::max(time, end_[static_cast<std::size_t>(needed)] + queue.delay);
      }
      time += instance_.duration(queue, k);
      end_[static_cast<std::size_t>(queue.first + k)] = time;
      done_[index] = k + 1;
      if (waiting_[index] != kNoWorker) {
        runnable_.push_back(static_cast<std::size_t>(waiting_[index]));
        waiting_[index] = kNoWorker;
      }
    }
    position_[worker] = position;
    free_[worker] = time;
  }

  const Instance& instance_;
  std::vector<double> end_;            // [op]
  std::vector<std::int32_t> done_;     // [queue]: finished ops
  std::vector<std::int32_t> waiting_;  // [queue]: worker that waits for its next op, or kNoWorker
  std::vector<std::size_t> position_;  // [worker]
  std::vector<double> free_;           // [worker]: end of its last op
  std::vector<std::size_t> runnable_;  // workers that can continue
  static constexpr std::int32_t kNoWorker = -1;
};

}  // namespace chimera
