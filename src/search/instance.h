#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "search/layout.h"
#include "simulate/costs.h"

// The problem as the inner loops of the search see it: dense numbers instead of ids.
//
// A chain is one stage of one replica, on its worker: its micro-batches come by as forwards, then as backwards. A lane
// is one of a chain's two or three queues of like ops: F, then B, or I and W. Within a lane, micro-batches run in
// ascending order, so that the order of a worker is a list of lanes and nothing more.
//
// Nothing is lost by that. Take any schedule, and give the k-th start of each lane to micro-batch k. Every dependency
// pairs the ops of two lanes micro-batch by micro-batch, with one and the same distance d (the first one's duration
// plus the delay) for all. As each start of the second lane is at least d after its partner in the first, the k-th
// smallest start of the second has k starts of the first at least d before it, hence the k-th smallest of the first.
// So all dependencies hold again, at the same times, and as many micro-batches are in flight at any time.

// What bounds on a problem ask of its lanes.

namespace chimera {

/// The most that a worker may hold at once, of something that the micro-batches in flight (forwarded, weight gradient
/// not yet done) take up.
struct HoldingLimit {
  std::string flag;                    // that set it, for messages
  std::vector<double> size_of_stage;   // [stage]: taken up by one micro-batch in flight there
  std::vector<double> room_of_worker;  // [worker]
};

struct SearchProblem {
  Layout layout;
  CostModel costs;
  bool split_backward = true;  // I and W in place of B
  std::vector<HoldingLimit> limits;
};

/// Whether a message takes as long between any two workers, so that these may change places.
[[nodiscard]] inline bool links_are_alike(const SearchProblem& problem) {
  return !problem.costs.links || !problem.costs.links->matrix;
}

using LaneIndex = std::int32_t;
inline constexpr LaneIndex kNoLane = -1;
inline constexpr LaneIndex kLanesOfChain = 3;

/// What an op of a lane does with its micro-batch.
enum LaneStep : std::int8_t { kForwardStep, kInputStep, kWeightStep };

struct Lane {
  std::int32_t worker = 0;
  std::int32_t count = 0;      // of ops; 0 for W where the backward is whole
  std::int32_t first = 0;      // index of its first op among all
  LaneIndex input = kNoLane;   // its k-th op must have ended `delay` before this lane's k-th starts
  LaneIndex output = kNoLane;  // the lane that has this one as its input
  double delay = 0;
  double duration = 0;
  bool takes = false;     // its ops begin to hold
  bool releases = false;  // its ops end holding
};

struct Instance {
  std::int32_t workers = 0;
  std::int32_t ops = 0;
  bool split_backward = true;
  std::vector<Lane> lanes;                        // [3 * chain + step]; chain = replica * stages + stage
  std::vector<std::vector<std::int32_t>> chains;  // [worker]
  std::vector<std::int32_t> replica;              // [chain]
  std::vector<std::vector<double>> size;          // [limit][chain]
  std::vector<std::vector<double>> room;          // [limit][worker]
};

/// orders[w]: the lanes of worker w's ops, in order.
using Orders = std::vector<std::vector<LaneIndex>>;

/// Sums of sizes may miss a limit by rounding, not by more.
inline constexpr double kRounding = 1e-9;

/// A limit that a single micro-batch of one replica already exceeds.
struct Shortage {
  const HoldingLimit* limit = nullptr;
  std::size_t worker = 0;
  std::size_t replica = 0;
  double needed = 0;
};

/// The first limit that leaves no room for a single micro-batch, and where. Where there is none, a schedule exists: one
/// micro-batch after the other.
[[nodiscard]] std::optional<Shortage> find_shortage(const SearchProblem& problem);

/// Throws ConfigError, naming the worker and what it waits for, where there is a shortage.
void require_room(const SearchProblem& problem);

/// Ops and messages only: a message takes what it takes with its link to itself, and what comes after the last op
/// (all-reduces, updates) is left out. Throws ConfigError as CostTable does.
[[nodiscard]] Instance make_instance(const SearchProblem& problem);

/// The schedule of these orders, unless a lane is used more or less often than it has ops.
[[nodiscard]] Schedule to_schedule(const SearchProblem& problem, const Orders& orders);

/// The orders of a schedule with the same placement and as many micro-batches in each replica; a whole B becomes I and
/// W side by side, and I and W become a B in the place of I, as the problem asks.
[[nodiscard]] Orders to_orders(const SearchProblem& problem, const Schedule& schedule);

/// The mean duration of all ops; 0 where there are none.
[[nodiscard]] double mean_duration(const Instance& instance);

/// Most that a worker holds at once when micro-batches in flight at a chain take up `size[chain]`.
[[nodiscard]] double peak_of(const Instance& instance, const std::vector<double>& size,
                             const std::vector<LaneIndex>& order);

/// Whether every worker keeps to every limit, and each lane stays behind the one before it in its chain.
[[nodiscard]] bool admissible(const Instance& instance, const Orders& orders);

/// All lanes, each after its input and the lane before it in its chain: forwards from the first stage on, then input
/// gradients from the last one back, then weight gradients.
[[nodiscard]] std::vector<std::size_t> lanes_in_order(const Instance& instance);

/// The most micro-batches that the chain can have in flight if it has its worker for itself; at least 1.
[[nodiscard]] std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain);

/// The most micro-batches that the worker can have in flight, if each counts as the smallest one on it.
[[nodiscard]] std::int64_t most_in_flight(const Instance& instance, std::size_t worker);

}  // namespace chimera
