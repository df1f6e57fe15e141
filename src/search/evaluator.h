#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "search/instance.h"

namespace chimera {

/// Makespan of orders with a cyclic wait.
inline constexpr double kStuck = std::numeric_limits<double>::infinity();

/// Times orders: each op starts as soon as its worker is free and its input has arrived. Takes a few nanoseconds per
/// op. Holds a reference to the instance.
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
