#pragma once

// The search problem in dense numbers instead of ids.
//
// A chain is a stage of a replica on its worker. Its lanes are its queues of ops of equal kind: F, then B, or I and W.
// Micro-batches of a lane run in ascending order, so a worker's order is just a list of lanes.
//
// This excludes no makespan: in any schedule, give the k-th start of each lane to micro-batch k. Ops of two lanes
// depend on each other by micro-batch, at a fixed distance d (duration plus delay). The k-th smallest start of the
// second lane has k starts of the first at least d before it. So all dependencies still hold at the same times, with as
// many micro-batches in flight.
//
// With k slices, a lane's ops are slices: forward in order, backward in reverse order, micro-batch by micro-batch. The
// i-th backward of a chain needs the first (floor(i / k) + 1) k forwards: all slices of its micro-batch. The i + 1
// backwards that start first belong to at least floor(i / k) + 1 micro-batches, so the argument above still holds. It
// is for slices of equal times; others count as their shortest, which keeps lower bounds valid.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "simulate/costs.h"

namespace chimera {

/// Memory limit for micro-batches in flight (forward done, weight gradient not done).
struct HoldingLimit {
  std::string flag;                    // name of the limit in messages
  std::vector<double> size_of_stage;   // [stage]: memory of a micro-batch in flight; its slices take equal parts
  std::vector<double> room_of_worker;  // [worker]
};

struct SearchProblem {
  Layout layout;
  CostModel costs;
  bool split_backward = true;  // I and W instead of B
  std::vector<HoldingLimit> limits;
};

/// Returns whether all links are equal, so that workers are interchangeable.
[[nodiscard]] inline bool links_are_alike(const SearchProblem& problem) {
  return !problem.costs.links || !problem.costs.links->matrix;
}

using LaneIndex = std::int32_t;
inline constexpr LaneIndex kNoLane = -1;
inline constexpr LaneIndex kLanesOfChain = 3;

enum LaneStep : std::int8_t { kForwardStep, kInputStep, kWeightStep };

struct Lane {
  std::int32_t worker = 0;
  std::int32_t count = 0;      // number of ops; 0 for W if backwards are whole
  std::int32_t first = 0;      // index of its first op
  LaneIndex input = kNoLane;   // its k-th op must end `delay` before this lane's k-th starts
  LaneIndex output = kNoLane;  // lane whose input is this lane
  double delay = 0;
  double duration = 0;
  bool takes = false;     // its ops allocate memory at their start
  bool releases = false;  // its ops free memory at their end
};

struct Instance {
  std::int32_t workers = 0;
  std::int32_t ops = 0;
  std::int32_t slices = 1;  // k; a micro-batch has k ops in a lane
  bool split_backward = true;
  std::vector<Lane> lanes;                        // [3 * chain + step]; chain = replica * stages + stage
  std::vector<std::vector<std::int32_t>> chains;  // [worker]
  std::vector<std::int32_t> replica;              // [chain]
  std::vector<std::vector<double>> size;          // [limit][chain], of a slice
  std::vector<std::vector<double>> room;          // [limit][worker]

  /// Returns how many ops of the chain's previous step must end before the i-th op of this one starts.
  [[nodiscard]] std::int32_t needed(std::size_t step, std::int32_t i) const {
    return slices == 1 || step != kInputStep ? i + 1 : (i / slices + 1) * slices;
  }
};

/// [worker]: the lanes of its ops, in order.
using Orders = std::vector<std::vector<LaneIndex>>;

/// Tolerance for rounding errors.
inline constexpr double kRounding = 1e-9;

/// A limit that a single micro-batch exceeds.
struct Shortage {
  const HoldingLimit* limit = nullptr;
  std::size_t worker = 0;
  std::size_t replica = 0;
  double needed = 0;
};

/// Returns the first shortage. Without a shortage, micro-batches can run one at a time.
[[nodiscard]] std::optional<Shortage> find_shortage(const SearchProblem& problem);

/// Throws ConfigError, naming worker and micro-batch, if there is a shortage.
void require_room(const SearchProblem& problem);

/// Returns the instance without link contention, all-reduces and updates. Throws ConfigError as CostTable does.
[[nodiscard]] Instance make_instance(const SearchProblem& problem);

/// Returns the schedule of these orders. Requires that no lane occurs more often than it has ops.
[[nodiscard]] Schedule to_schedule(const SearchProblem& problem, const Orders& orders);

/// Returns a schedule's orders; placement and micro-batches per replica must match. If the problem splits backwards, B
/// becomes I and W in sequence; otherwise I and W become B at the place of I.
[[nodiscard]] Orders to_orders(const SearchProblem& problem, const Schedule& schedule);

[[nodiscard]] double mean_duration(const Instance& instance);

/// Returns a worker's peak memory if a slice in flight at a chain takes `size[chain]`.
[[nodiscard]] double peak_of(const Instance& instance, const std::vector<double>& size,
                             const std::vector<LaneIndex>& order);

/// Returns whether orders are complete, keep all limits, and keep each lane behind its chain's previous lane.
[[nodiscard]] bool admissible(const Instance& instance, const Orders& orders);

/// Returns all lanes, each after its inputs.
[[nodiscard]] std::vector<std::size_t> lanes_in_order(const Instance& instance);

/// Returns the maximum number of slices in flight if the chain were alone on its worker; at least 1.
[[nodiscard]] std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain);

/// Returns the maximum number of slices in flight if each took the smallest size on the worker.
[[nodiscard]] std::int64_t most_in_flight(const Instance& instance, std::size_t worker);

}  // namespace chimera
