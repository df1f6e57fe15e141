#pragma once

// `chimera sweep`: the request and its answer, a ranking of schedules simulated with the same number of stages (D),
// number of micro-batches (N) and times of ops, the fastest first.
//
// A sweep varies conditions and schedules. A condition is one combination of D, N and the times of ops, from the lists
// of the request. Only rows of the same condition are compared. The user may name the schedules; the default is
// all synchronous ones. A named schedule has its default parameters, except those that are given. If the user names
// none, each schedule is simulated with all useful values of the parameters that are not given, and only its best row
// is kept.
//
//   lists -> conditions -> schedules x parameters -> simulate() -> rows -> table, CSV, JSON lines, chart
//                                                                               \-> training (apps/sweep.cc)
//
// A row is one simulated schedule. Its cells, each with the name of its column, are the shape (D stages, N
// micro-batches), the times of ops, and results such as `makespan`, the duration of a step.

#include <limits>
#include <nlohmann/json.hpp>

#include "answers/cost_request.h"
#include "answers/shape_request.h"

namespace chimera {

/// The request of `chimera sweep`.
struct SweepRequest {
  std::string schedules;  // names and files, separated by commas, or `all`; empty: all synchronous schedules, with
                          // their best parameters
  ShapeRequest shape;     // lists
  CostRequest costs;      // lists of times
  PairRequest pairs;
  LimitRequest limits;  // a schedule that exceeds them has no row
  // Whether only Pareto-optimal rows are kept: no other row of the same schedule and condition has both a shorter
  // makespan and a lower peak of activations
  bool pareto = false;
  /// Reads a schedule file. Null if requests cannot name files, as in the playground.
  std::function<Schedule(const std::string& path)> load = nullptr;

  void visit(Door& door);
};

/// A value of a row, such as `makespan` 42.
struct SweepCell {
  std::string column;
  std::string text;  // empty: a parameter that the schedule lacks
  bool is_number = true;
  bool is_condition = false;  // D, N or a time of the lists: only rows of equal conditions are compared
  double number = std::numeric_limits<double>::quiet_NaN();  // the value of `text`; NaN if it is no number
};

/// Columns that `sweep --train` adds to a row (apps/sweep.cc). `run` is a checksum of the data and the flags.
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
  /// Returns an empty cell if the row has no such column.
  [[nodiscard]] const SweepCell& cell(const std::string& column) const;
  [[nodiscard]] double number(const std::string& column) const { return cell(column).number; }
  [[nodiscard]] const std::string& text(const std::string& column) const { return cell(column).text; }
};

/// A schedule that cannot run, or exceeds a limit, in at least one condition, and has no row there.
struct LeftOutSchedule {
  std::string name;
  std::string reason;     // why it has no row in the first such condition
  std::int64_t more = 0;  // number of further conditions without a row
};

/// The answer: rows, and what has no row.
struct SweepResult {
  std::vector<SweepRow> rows;  // at least one; all have the same columns
  std::vector<LeftOutSchedule> left_out;
  std::vector<std::string> notes = {};  // fields without effect
};

/// Simulates all rows. Conditions are in the order of the lists; the rows of a condition are sorted by makespan. Throws
/// ConfigError for an invalid request, and if there is no row.
[[nodiscard]] SweepResult answer(const SweepRequest& request);

/// Returns the table, and below it the schedules that were left out. If all rows have the same D, N and op times, the
/// text ends with commands that draw, improve and train the best schedule.
[[nodiscard]] std::string to_text(const SweepResult& result);

/// Returns why a schedule is not in the table, for example `left out zb-v: --micro-batches must be 2D = 8 or more (and
/// 2 more rows)`.
[[nodiscard]] std::string to_text(const LeftOutSchedule& schedule);

/// Returns the rows as CSV. The header line has the column names of the first row.
[[nodiscard]] std::string to_csv(const std::vector<SweepRow>& rows);

/// Returns an array with an object per row. Empty cells, such as a parameter that the schedule does not have, are
/// omitted.
[[nodiscard]] nlohmann::ordered_json rows_json(const std::vector<SweepRow>& rows);
/// Returns these objects, one per line.
[[nodiscard]] std::string to_json_lines(const std::vector<SweepRow>& rows);

/// Draws column `value` (y axis) over column `over` (x axis) as SVG. A curve has the rows of one schedule with equal D,
/// N and op times, apart from the value on the x axis. Rows that differ in other parameters, such as `pipelines`, share
/// a curve only if `merges_parameters`. Throws ConfigError for an unknown column.
[[nodiscard]] std::string draw_chart(const std::vector<SweepRow>& rows, const std::string& value,
                                     const std::string& over, bool merges_parameters);

}  // namespace chimera
