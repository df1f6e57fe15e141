#pragma once

// The parts of a request about the assumptions of a simulation: times of ops or a file with all costs (CostRequest),
// pairs of ops that overlap (PairRequest), and limits that a schedule must meet (LimitRequest).
//
//   schedule = pairs.apply_to(schedule)                    marks the ops that may overlap
//   model    = pairs.with_time(costs.costs_of(schedule))   CostModel for simulate()
//   check_limits(schedule, limits.limits())                violations if the schedule exceeds a limit
//
// The ops of a schedule are forwards (F) and backwards (B). A schedule may split a backward into an input gradient (I)
// and a weight gradient (W), and each op into *slices*, parts of the micro-batch's token sequence.

#include "answers/door.h"
#include "answers/shape_request.h"
#include "check/check_limits.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {

/// Ops that may overlap (--pairs)
enum class PairChoice : std::uint8_t {
  Own,        ///< the pairs that the schedule has from its generator or file
  Neighbors,  ///< each forward and the backward directly after it (pair_neighbors)
  None,       ///< no pairs
};
template <>
inline constexpr auto kNames<PairChoice> = in_order<PairChoice>("own", "neighbors", "none");

struct CostRequest;

/// A time with several values, for `chimera sweep`.
struct TimeList {
  std::string column;  // name of the field
  std::optional<double> CostRequest::*time;
  std::vector<double> values;
};

/// Costs of all ops and messages, in any unit of time. The times of ops are for all stages that a replica of the model
/// has on one worker, together. If a worker has two stages, a forward of one of them takes `forward` / 2.
struct CostRequest {
  std::optional<double> forward = {};          // default: 1
  std::optional<double> backward = {};         // default: 2
  std::optional<double> input_gradient = {};   // I; default: half of the backward
  std::optional<double> weight_gradient = {};  // W; default: half of the backward, too
  std::optional<double> latency = {};          // delay of each message
  std::optional<double> attention = {};        // fraction of an op's time that is attention, 0 to 1; for slices only
  std::vector<TimeList> lists = {};            // the times above that have several values
  std::vector<double> stage_factors = {};      // [stage], or a single one for all: times of ops are multiplied by it
  double all_reduce = 0;                       // time of a stage's all-reduce; 0: none
  // For the peak memory of workers; both 0: not computed
  double weights = 0;      // bytes of weights, gradients and optimizer state of all stages of a replica on a worker
  double activations = 0;  // bytes of activations of a full micro-batch in these stages
  /// Tokens of each slice; one entry: equal lengths; empty, or not given: equal times.
  std::optional<std::vector<double>> slice_lengths = {};
  Document file = {};   // cost file, instead of the times above
  Document links = {};  // message costs per pair of workers, instead of latency or those of `file`
  std::optional<AllReducePlacement> sync = {};  // when a worker starts gradient all-reduces; default: eager-opt
  bool blocking_sends = false;                  // whether a sender waits until its message has arrived
  std::int64_t data_parallel = 1;               // number of data-parallel groups
  bool shared_cores = false;                    // whether all groups run on shared cores (`simulate --cores`)
  bool refuses_unused = false;                  // whether fields without effect are refused, as on the command line

  /// Declares the name, help and range of each field to `door`, which reads them from flags, JSON or Python. `counts`
  /// says whether the times also accept lists.
  void visit(Door& door, FieldValues counts = FieldValues::Single);
  /// Returns copies with single times for each combination of the lists. The first list varies slowest. Throws
  /// ConfigError for more than kMaxListed combinations.
  [[nodiscard]] std::vector<CostRequest> combinations() const;
  /// Returns the costs of the schedule, which contains `steps` steps. Throws ConfigError if fields contradict each
  /// other, or if a file cannot be read or does not fit the schedule.
  [[nodiscard]] CostModel costs_of(const Schedule& schedule, std::int64_t steps = 1) const;
  /// Returns a line for each given field that only affects slices, for requests whose schedules have none.
  [[nodiscard]] std::vector<std::string> unused_without_slices() const;

 private:
  [[nodiscard]] CostModel given_costs(const Schedule& schedule) const;
};

/// Parses --slice-lengths: empty for `balanced`, one 1 for `equal`, else the tokens of each slice. Throws ConfigError
/// for other texts and for lengths of 0.
[[nodiscard]] std::vector<double> parse_slice_lengths(const std::string& text);

/// Note for requests with a time of pairs and schedules without pairs.
inline constexpr const char* kNoPairs =
    "--pair-time has no effect: no schedule has pairs; --pairs neighbors makes them";

/// A pair is a forward and a backward that may overlap on their worker.
struct PairRequest {
  PairChoice choice = PairChoice::Own;
  std::optional<double> time = {};  // time of a pair, relative to the sum of the times of its two ops; default: 1

  void visit(Door& door);
  /// Declares --pair-time; visit() declares --pairs.
  void visit_time(Door& door);
  /// Returns the schedule with the pairs of `choice`. Throws ConfigError for Neighbors if the schedule has slices.
  [[nodiscard]] Schedule apply_to(Schedule schedule) const;
  /// Returns `costs` with the time of pairs, if it is given. Throws ConfigError if `costs` has such a time already.
  [[nodiscard]] CostModel with_time(CostModel costs) const;
};

/// Limits of a worker.
struct LimitRequest {
  /// Activations; unit: one micro-batch in all stages of a replica on a worker.
  std::optional<double> max_in_flight = {};
  std::optional<double> memory = {};            // bytes
  std::optional<double> activation_bytes = {};  // bytes of activations in one such unit
  std::optional<double> weight_bytes = {};      // bytes of weights of all stages of a replica on a worker

  /// Declares the fields to `door`. `consequence` ends the help of max_in_flight and memory: it says what happens to
  /// schedules beyond the limit.
  void visit(Door& door, const std::string& consequence = "");
  /// Returns the given limits. Throws ConfigError if only some of memory, activation_bytes and weight_bytes are given.
  [[nodiscard]] Limits limits() const;
  /// Returns the limits for messages, such as `--max-in-flight 4, --memory 1e9`.
  [[nodiscard]] std::string text() const;
};

}  // namespace chimera
