#pragma once

// Results of `chimera check` as text and JSON, and of `chimera search` as JSON. The playground (answers/playground.h)
// builds its answers from the same JSON.
//
// check_everything() runs every check of src/check on a schedule and on the programs that lower() makes of it. (A
// schedule is the order of each worker's ops; a program adds the sends, receives and all-reduces.) Its CheckResult has
// a Finding for each violation or note, with an excerpt of the schedule, and a Proof for each program without
// violations. check_text() and check_json() format the result; search_json() formats the result of a search. A
// NamedPlacement is a value of the flag --placement and of the playground's field `placement`. The other functions
// prepare schedules for a search and for PyTorch.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "check/check_limits.h"
#include "check/violation.h"
#include "generate/generator.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "search/layout.h"
#include "search/search.h"

namespace chimera {

/// A placement (map from stages to workers) that a search accepts by name. make_search_layout() (search/layout.h) makes
/// the input of a search, a SearchLayout, from `kind` and a PipelineShape, which has the numbers of stages and
/// micro-batches.
struct NamedPlacement {
  const char* name;
  PlacementKind kind;
  std::vector<Axis> axes = {};  // shape parameters that the placement has, besides stages, micro-batches and slices
  std::int64_t chunks = 1;      // default of PipelineShape::chunks

  /// Returns whether `axes` contains the parameter.
  [[nodiscard]] bool has_axis(Axis axis) const;
};

/// Returns all placements, the default first.
[[nodiscard]] std::span<const NamedPlacement> named_placements();

/// Returns whether an op of the schedule is an input-gradient op, so that backwards are split.
[[nodiscard]] bool has_split_backwards(const Schedule& schedule);

/// Returns the input of a search for better orders of the same ops: the schedule's workers, stages, placement,
/// micro-batches and slices, without the order. Throws ConfigError for schedules that a search does not cover:
/// asynchronous schedules, and schedules that split micro-batches in halves (Schedule::micro_batch_scale is not 1).
[[nodiscard]] SearchLayout search_layout_of(const Schedule& schedule);

/// Returns a synchronous schedule in PyTorch's CSV format with sends and receives (`pipeline_order_with_comms`).
[[nodiscard]] std::string csv_with_messages(const Schedule& schedule);

/// Returns the best schedule of a search, its makespan, lower bound and peak of activations, and the Pareto front as
/// JSON. `placement` is the name of its placement; if it is empty, the JSON has no field `placement`.
[[nodiscard]] std::string search_json(const SearchResult& result, const std::string& placement = "");

/// A violation or note, and where check_everything() found it.
struct Finding {
  std::string level;  // what was checked: `schedule`, or for example `program, per-direction channels, pairs together`
  Violation violation;
  std::string excerpt;  // the workers' ops or instructions around the violation, as text
};

/// A program in which check() found no violation, so it cannot deadlock.
struct Proof {
  std::string level;            // which program, as in Finding::level
  std::int64_t receives_ahead;  // maximum number of receives that a worker has posted and not finished, at any time
};

/// The worker that has the most receives in progress while it runs ops. It matters on GPUs, where a receive is posted
/// ahead and occupies multiprocessors until its message arrives. The estimate assumes that a backward takes twice as
/// long as a forward, and messages take no time.
struct ReceiveWaits {
  WorkerId worker;
  double mean_waiting = 0;  // number of receives in progress, averaged over the time of the worker's ops
};

/// Result of check_everything().
struct CheckResult {
  Schedule schedule;
  std::vector<Finding> findings;
  std::vector<Proof> proofs;
  std::optional<ReceiveWaits> waits = std::nullopt;  // of a valid schedule with messages

  [[nodiscard]] std::size_t count(Severity severity) const;
  [[nodiscard]] bool is_valid() const { return count(Severity::Violation) == 0; }
};

/// Checks the schedule. If it is valid, also checks the limits, the order in which gradients are accumulated, and the
/// schedule's program for each ChannelDiscipline (the order in which a transport matches sends and receives). If the
/// schedule has pairs (a forward and a backward that may overlap), also checks the programs that run them together.
/// Gradients that are not accumulated in the order of the samples are a violation if `strict_order`, else a note.
[[nodiscard]] CheckResult check_everything(Schedule schedule, const Limits& limits, bool strict_order);

/// Returns the findings with their excerpts, or the proofs, as lines of text.
[[nodiscard]] std::string check_text(const CheckResult& result);
/// Returns a JSON object with the fields `valid`, `name`, `violations` and `notes`. The last two are lists of objects
/// with `level`, `kind`, `message` and `places`.
[[nodiscard]] std::string check_json(const CheckResult& result);

}  // namespace chimera
