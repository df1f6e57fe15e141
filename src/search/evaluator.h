#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "search/instance.h"

// Times candidate orders for local search, millions of times per run. simulate() states the rules of time for every
// kind of cost; this class keeps only two of them (an op waits for its worker, and for its input plus a delay) on dense
// lanes, without allocation, and reports only ends. That is why it exists beside simulate(): it takes a few nanoseconds
// per op in place of about a hundred. Tests require that both agree where they model the same costs, and the search
// reports only makespans of simulate().

namespace chimera {

/// Makespan of orders with a cyclic wait.
inline constexpr double kStuck = std::numeric_limits<double>::infinity();

/// Starts each op as soon as its worker is free and its input has arrived. Holds a reference to the instance.
class Evaluator {
 public:
  explicit Evaluator(const Instance& instance);

  /// Returns the makespan of the orders. Requires that each lane stays behind its chain's previous lane (admissible()).
  double makespan(const Orders& orders);
  /// [op]: its end, after makespan().
  [[nodiscard]] const std::vector<double>& ends() const { return end_; }
  /// Mean end of the workers, after makespan().
  [[nodiscard]] double mean_end() const;

 private:
  void run(std::size_t worker, const std::vector<LaneIndex>& order);

  const Instance& instance_;
  std::vector<double> end_;            // [op]
  std::vector<std::int32_t> done_;     // [lane]: finished ops
  std::vector<std::int32_t> waiting_;  // [lane]: worker that waits for its next op, or kNobody
  std::vector<std::size_t> position_;  // [worker]
  std::vector<double> free_;           // [worker]: end of its last op
  std::vector<std::size_t> runnable_;  // workers that can continue
  static constexpr std::int32_t kNobody = -1;
};

}  // namespace chimera
