#pragma once

// The ranking of `chimera sweep`: schedules simulated with the same number of stages (D), number of micro-batches (N)
// and times of ops, the fastest first.
//
// A sweep varies conditions and schedules. A condition is one combination of D, N and the times of ops, from the lists
// on the command line. Only rows of the same condition are compared. The user may name the schedules; the default is
// all synchronous ones. A named schedule has its default parameters, except those that flags set. If the user names
// none, each schedule is simulated with all useful values of the parameters that no flag sets, and only its best row is
// kept.
//
//   lists of flags -> conditions -> schedules x parameters -> simulate() -> rows -> table, CSV, chart (sweep_output.h)
//                                                                               \-> training (sweep_training.h)

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "flags/costs.h"
#include "flags/shape.h"

namespace chimera::apps {

/// What to simulate: the parsed flags of the command.
struct Sweep {
  std::vector<std::string> schedules;  // names and files; empty: all synchronous schedules, with their best parameters
  const ShapeFlags& shape;
  const CostFlags& costs;
  const PairFlags& pairs;       // whether a forward and a backward overlap on a worker
  const LimitFlags& limits;     // a schedule that exceeds them has no row
  bool keeps_variants = false;  // whether all tried values of a parameter have rows, not only the best
};

/// A value of a row, such as `makespan` 42.
struct SweepCell {
  std::string column;
  std::string text;  // empty: a parameter that the schedule lacks
  bool is_number = true;
  double number = std::numeric_limits<double>::quiet_NaN();  // the value of `text`; NaN if it is no number
};

/// Columns that `sweep --train` adds to a row (sweep_training.h). `run` is a checksum of the data and the flags.
inline constexpr std::array kMeasuredColumns = {"tokens_per_second", "step_seconds", "peak_memory_bytes", "last_loss",
                                                "run"};

/// A simulated schedule. The order of its cells: the inputs of the simulation (schedule, D, N, parameters, and the
/// times with several values on the command line), and then its results, of which `makespan` is the first.
struct SweepRow {
  std::vector<SweepCell> cells;
  std::string parameters;  // flags that differ from the defaults, such as `--chunks 4`

  [[nodiscard]] const std::string& schedule() const { return cells.front().text; }
  /// Returns the cells before `makespan`: the inputs of the simulation.
  [[nodiscard]] std::vector<SweepCell> inputs() const;
  /// Returns NaN if the row has no such column.
  [[nodiscard]] double number(const std::string& column) const;
  /// Returns an empty text if the row has no such column.
  [[nodiscard]] const std::string& text(const std::string& column) const;
};

/// A schedule that cannot run, or exceeds a limit, in at least one condition, and has no row there.
struct LeftOutSchedule {
  std::string name;
  std::string reason;     // why it has no row in the first such condition
  std::int64_t more = 0;  // number of further conditions without a row
};

struct SweepResult {
  std::vector<SweepRow> rows;  // at least one; all have the same columns
  std::vector<LeftOutSchedule> left_out;
};

/// Simulates all rows. Conditions are in the order of the lists; the rows of a condition are sorted by makespan. Throws
/// ConfigError if there is no row.
[[nodiscard]] SweepResult rank_schedules(const Sweep& sweep);

/// Returns the Pareto-optimal rows: no other row of the same schedule and condition has both a shorter makespan and a
/// lower peak of activations.
[[nodiscard]] std::vector<SweepRow> pareto_fronts(const std::vector<SweepRow>& rows);

/// Returns the names in a list such as `1f1b,chimera,mine.json`; `all` stands for all schedules. Throws ConfigError for
/// an unknown name.
[[nodiscard]] std::vector<std::string> parse_schedules(const std::string& text);

/// Returns whether the column is a time of kTimeColumns (flags/costs.h), such as `latency`.
[[nodiscard]] bool is_time(const std::string& column);

}  // namespace chimera::apps
