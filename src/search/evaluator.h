#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "search/instance.h"

namespace chimera {

/// The makespan of orders that wait for each other in a cycle.
inline constexpr double kStuck = std::numeric_limits<double>::infinity();

/// Times orders, over and over: each op starts as soon as its worker is free and its input is there. Linear in the ops,
/// a few nanoseconds each. Holds a reference to the instance.
class Evaluator {
 public:
  explicit Evaluator(const Instance& instance);

  /// Requires orders in which each lane stays behind the one before it in its chain (admissible()).
  double makespan(const Orders& orders);
  /// After makespan(): when each op ends, by its number in the instance.
  [[nodiscard]] const std::vector<double>& ends() const { return end_; }
  /// After makespan(): the mean over the workers of when they are done.
  [[nodiscard]] double mean_end() const;

 private:
  void run(std::size_t worker, const std::vector<LaneIndex>& order);

  const Instance& instance_;
  std::vector<double> end_;            // [op]
  std::vector<std::int32_t> done_;     // [lane]: ops that ran
  std::vector<std::int32_t> waiting_;  // [lane]: the worker that waits for its next op, or kNobody
  std::vector<std::size_t> position_;  // [worker]
  std::vector<double> free_;           // [worker]: end of its last op
  std::vector<std::size_t> runnable_;  // workers that may go on
  static constexpr std::int32_t kNobody = -1;
};

}  // namespace chimera
