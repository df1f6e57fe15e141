#pragma once

// Forms in which `chimera sweep` shows its rows: a table for people, CSV and JSON for programs, and a chart.

#include <string>
#include <vector>

#include "sweep_rows.h"

namespace chimera::apps {

/// Returns the table with the schedules that were left out. If all rows have the same D, N and times, it ends with
/// commands that draw, improve and train the best schedule.
[[nodiscard]] std::string to_text(const SweepResult& result);

/// Example: `left out zb-v: --micro-batches must be 2D = 8 or more (and 2 more rows)`.
[[nodiscard]] std::string to_text(const LeftOutSchedule& schedule);

/// Returns CSV with the column names of the first row.
[[nodiscard]] std::string to_csv(const std::vector<SweepRow>& rows);

/// Returns a JSON object per line, without empty cells.
[[nodiscard]] std::string to_json_lines(const std::vector<SweepRow>& rows);

/// Draws column `value` over column `over` as SVG, with a curve per schedule and condition (sweep_rows.h). Rows with
/// different parameters, such as `pipelines`, share a curve only if `merges_parameters`. Throws ConfigError for an
/// unknown column.
[[nodiscard]] std::string draw_chart(const std::vector<SweepRow>& rows, const std::string& value,
                                     const std::string& over, bool merges_parameters);

}  // namespace chimera::apps
