#pragma once

// The ranking of `chimera sweep`: schedules simulated under equal conditions, the fastest first.
//
// A sweep varies conditions and schedules. A condition is one choice of D, N and the times of ops, from the lists on
// the command line; only rows of one condition are compared. The schedules are those that the user names, or all
// synchronous ones. A named schedule has its default parameters, apart from given flags. Without names, each schedule
// is tried with all useful values of the parameters that no flag gives, and its best row stays.
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

struct Sweep {
  std::vector<std::string> schedules;  // names and files; empty: all synchronous schedules, with their best parameters
  const ShapeFlags& shape;
  const CostFlags& costs;
  const PairFlags& pairs;
  const LimitFlags& limits;     // a schedule that exceeds them has no row
  bool keeps_variants = false;  // whether each tried value of a parameter has a row
};

struct SweepCell {
  std::string column;
  std::string text;  // empty: a parameter that the schedule lacks
  bool is_number = true;
  double number = std::numeric_limits<double>::quiet_NaN();  // what `text` says, if it is a number
};

/// Columns that training adds to a row
inline constexpr std::array kMeasured = {"tokens_per_second", "step_seconds", "peak_memory_bytes", "last_loss"};

/// A simulated schedule. Its cells are the shape, the listed times, and then the figures from `makespan` on.
struct SweepRow {
  std::vector<SweepCell> cells;
  std::string parameters;  // flags that differ from the defaults, such as `--chunks 4`

  [[nodiscard]] const std::string& schedule() const { return cells.front().text; }
  /// Returns the cells before `makespan`, which say what was simulated.
  [[nodiscard]] std::vector<SweepCell> inputs() const;
  /// Returns NaN if the row has no such column.
  [[nodiscard]] double number(const std::string& column) const;
  [[nodiscard]] const std::string& text(const std::string& column) const;
};

/// A schedule without a row for some condition.
struct LeftOutSchedule {
  std::string name;
  std::string reason;     // for the first condition
  std::int64_t more = 0;  // further conditions
};

struct SweepResult {
  std::vector<SweepRow> rows;  // at least one; all have the same columns
  std::vector<LeftOutSchedule> left_out;
};

/// Simulates all rows. Conditions are in the order of the lists; the rows of a condition are sorted by makespan. Throws
/// ConfigError if there is no row.
[[nodiscard]] SweepResult rank_schedules(const Sweep& sweep);

/// Returns the rows that no other row of the same schedule, D, N and times beats in both makespan and activations.
[[nodiscard]] std::vector<SweepRow> pareto_fronts(const std::vector<SweepRow>& rows);

/// Returns the names in a list such as `1f1b,chimera,mine.json`; `all` stands for all schedules. Throws ConfigError for
/// an unknown name.
[[nodiscard]] std::vector<std::string> parse_schedules(const std::string& text);

/// Returns whether the column is a listed time, such as `latency`.
[[nodiscard]] bool is_time(const std::string& column);

}  // namespace chimera::apps
