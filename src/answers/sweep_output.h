#pragma once

// Output of `chimera sweep`: a table for people, CSV and JSON lines for programs, and a chart. A row (sweep_answer.h)
// is one simulated schedule. Its cells, each with the name of its column, are the shape (D stages, N micro-batches),
// the times of ops, and results such as `makespan`, the duration of a step.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answers/sweep_answer.h"

namespace chimera {

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
