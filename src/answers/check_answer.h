#pragma once

// Results of `chimera check` as text and JSON, and of `chimera search` as JSON. The playground (answers/playground.h)
// builds its answers from the same JSON.
//
// examine() runs every check of src/check on a schedule and on the programs that lower() makes of it. Its CheckReport
// has a Finding per violation or note, with an excerpt of the rows around it, and a Proof per program without
// violations. check_text() and check_json() format the report; search_json() formats the result of a search. A
// NamedPlacement is a value of --placement and of the playground's field `placement`. The other functions prepare
// schedules for a search and for PyTorch; the commands and the page share them too.

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

/// A placement that a search accepts by name: layout_of() builds its layout from `kind` and a PipelineShape.
struct NamedPlacement {
  const char* name;
  PlacementKind kind;
  std::vector<Axis> axes = {};  // shape parameters that the placement has, besides stages, micro-batches and slices
  std::int64_t chunks = 1;      // default of PipelineShape::chunks

  /// Returns whether `axes` contains the parameter.
  [[nodiscard]] bool takes(Axis axis) const;
};

/// Returns all placements, the default first.
[[nodiscard]] std::span<const NamedPlacement> named_placements();

/// Returns whether an op of the schedule is an input-gradient op, so that backwards are split.
[[nodiscard]] bool has_split_backwards(const Schedule& schedule);

/// Returns the layout of a schedule whose order a search may improve. Throws ConfigError for schedules that a search
/// does not cover: asynchronous ones, and halves of micro-batches.
[[nodiscard]] Layout layout_around(const Schedule& schedule);

/// Returns PyTorch's CSV with sends and receives, of a schedule without updates between ops.
[[nodiscard]] std::string csv_with_messages(const Schedule& schedule);

/// Returns the best schedule, its figures and the Pareto front as JSON. `placement` names its placement; empty: none.
[[nodiscard]] std::string search_json(const SearchResult& result, const std::string& placement = "");

struct Finding {
  std::string level;  // `schedule`, or for example `program, per-direction channels, pairs together`
  Violation violation;
  std::string excerpt;  // rows of the places in the counterexample
};

/// Program that check() found free of deadlocks.
struct Proof {
  std::string level;
  std::int64_t receives_ahead;  // maximum number of receives that a worker has posted and not finished
};

/// Receives of a program for GPUs that wait beside ops. Ops take 1 (F) and 2 (B) times D/S, messages no time.
struct ReceiveWaits {
  WorkerId worker;          // with the most
  double beside_an_op = 0;  // mean number over its op time of receives that wait
};

struct CheckReport {
  Schedule schedule;
  std::vector<Finding> findings;
  std::vector<Proof> proofs;
  std::optional<ReceiveWaits> waits = std::nullopt;  // of a valid schedule with messages

  [[nodiscard]] std::size_t count(Severity severity) const;
  [[nodiscard]] bool is_valid() const { return count(Severity::Violation) == 0; }
};

/// Checks the schedule. If it is valid, checks its limits, its sample order, and its program for each channel
/// discipline; if it has pairs, also the programs that run pairs together. Gradients out of sample order are a
/// violation if `strict_order`, else a note.
[[nodiscard]] CheckReport examine(Schedule schedule, const Limits& limits, bool strict_order);

[[nodiscard]] std::string check_text(const CheckReport& report);
/// Returns an object with `valid`, `name`, `violations` and `notes`. Entries of the lists have level, kind, message and
/// places.
[[nodiscard]] std::string check_json(const CheckReport& report);

}  // namespace chimera
