#pragma once
// A pipeline's steps as its ranks recorded them: the schedule that ran, the times of its ops on one clock, and where
// the time of each worker went. read_traces() makes a Trace from the files of all ranks; trace_costs() derives the
// costs of a simulation from it.
//
//   files -> RankTrace of each rank -> one pipeline -> steps -> Schedule, TraceStep -> CostModel

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"
#include "traces/rank_trace.h"

namespace chimera {

/// Seconds of a worker in a step. Their sum, without `inside`, is the time of the step (TraceStep::seconds).
struct WorkerParts {
  std::array<double, kOpKinds> ops{};  // [kind]
  double late = 0;                     // Waiting for messages whose op had not ended
  double transit = 0;                  // Waiting for messages in transit
  double messages = 0;                 // Starting sends and receives
  double sums = 0;                     // Gradient sums
  double gathers = 0;                  // Gathering and freeing sharded weights
  double optimizer = 0;                // Optimizer steps
  double ends = 0;                     // Before the first op starts and after the last
  double host = 0;                     // Between ops
  double inside = 0;                   // Part of `ops` in which no operator or kernel runs
};

/// A wait of an op for an op of another worker that ends late.
struct LateOp {
  Place op;
  Place waits_for;
  double seconds = 0;
};

/// Costs of a step in seconds: means over its micro-batches.
struct TraceStepCosts {
  /// [stage][kind]: how long an op occupies its worker. It includes the starts of its messages, and the host's time
  /// before it. 0: no such op
  std::vector<std::array<double, kOpKinds>> ops;
  std::array<double, kOpKinds> host{};  // [kind]: part of an op in which no operator runs; 0 on a device
  std::vector<double> launches;         // [stage]: host's time to launch a backward for each weight; 0: not measured
  std::vector<double> copies;           // [boundary]: start of a send or a receive
  std::vector<double> between;  // [worker]: update, from its last op to its first op of the next step; -1: unknown
  double latency = 0;           // Mean time of awaited messages on their way, without the starts of send and receive
};

/// A step. Times are in seconds from its start.
struct TraceStep {
  double seconds = 0;   // Until the next step starts; estimated for the last step of the traces
  double pipeline = 0;  // Until the last op, or sum of gradients, ends
  Timeline timeline;
  std::vector<Message> messages;
  std::vector<bool> awaited;       // [message]: whether the receiver waited for it
  std::vector<WorkerParts> parts;  // [worker]
  std::vector<LateOp> late;
  TraceStepCosts costs;
};

/// A pipeline and its steps.
struct Trace {
  Schedule schedule;
  bool is_known = false;            // Whether a generator makes the same orders; its name is in `schedule`
  bool on_device = false;           // Whether times are those of kernels
  bool steps_overlap = false;       // Whether ranks start a step while others end the one before
  std::int64_t data_parallel = 1;   // Number of data-parallel groups
  std::vector<std::int64_t> ranks;  // [worker]: its rank in the job
  std::vector<TraceStep> steps;     // At least one
  std::vector<std::string> notes;   // Sentences for the user, such as which of several pipelines this is
  /// [stage][kind]: seconds of work of each micro-batch and step.
  std::vector<std::array<std::vector<double>, kOpKinds>> times;
  std::vector<std::vector<double>> sums;              // [stage]: seconds of each gradient sum in the files
  std::optional<double> weight_share = std::nullopt;  // Weight gradient's fraction of a whole backward, by operators
  /// Ranks of other data-parallel groups: rank, and its median time of ops relative to the same ops of this pipeline.
  std::vector<std::pair<std::int64_t, double>> peers;

  /// Returns the indices of `steps`, the shortest step first.
  [[nodiscard]] std::vector<std::size_t> steps_by_seconds() const;
  /// Returns the index of a step of median time.
  [[nodiscard]] std::size_t median_step() const { return steps_by_seconds()[(steps.size() - 1) / 2]; }
  /// Returns the time of that step.
  [[nodiscard]] double step_seconds() const { return steps[median_step()].seconds; }
};

/// Steps to read, `first` to `last`, both included. Step 1 is the first that all ranks have recorded.
struct TraceSteps {
  std::int64_t first = 1;
  std::int64_t last = kMaxOps;
};

/// Returns the trace files of the paths: the files themselves, and those in folders and the folders below. Of several
/// folders with traces below a path, such as torchtitan's `iteration_10`, only the last in natural order counts.
[[nodiscard]] std::vector<std::string> find_trace_files(const std::vector<std::string>& paths);

/// Reads the traces of all ranks of a pipeline. If there are several data-parallel groups, the result is about one of
/// them, whose ranks must all be given. Throws ConfigError, naming the files, if ranks are missing or given twice, if
/// the files are of different runs, if `steps` do not exist, or if the ops form no schedule.
[[nodiscard]] Trace read_traces(const std::vector<std::string>& paths, const TraceSteps& steps = {});
/// Does the same with traces that are read already.
[[nodiscard]] Trace join_ranks(std::vector<RankTrace> ranks, const TraceSteps& steps = {});

/// Returns the mean costs of the steps around the median (three fifths of all), in seconds: an unusual step does not
/// count, but an op of a usual step that takes longer does.
[[nodiscard]] CostModel trace_costs(const Trace& trace);
/// Returns [kind]: the part of these costs that does not depend on the size of an op, because no operator runs; 0 on a
/// device.
[[nodiscard]] std::array<double, kOpKinds> trace_host_seconds(const Trace& trace);

/// Returns the mean; 0 of no values.
[[nodiscard]] double mean(const std::vector<double>& values);
/// Returns the median; 0 of an empty list.
[[nodiscard]] double median(std::vector<double> values);

/// Returns schedules of all synchronous generators with these numbers of workers and micro-batches, in several shapes
/// with up to max(2, `chunks`) stages of a replica per worker. Leaves out schedules with slices or halved
/// micro-batches, and all of them for more than about 1,000,000 ops.
[[nodiscard]] std::vector<Schedule> known_schedules(std::int64_t workers, std::int64_t micro_batches,
                                                    std::int64_t chunks);

}  // namespace chimera
