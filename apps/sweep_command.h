#pragma once

#include <string>
#include <vector>

#include "check/check_limits.h"
#include "options.h"
#include "pair_flags.h"

namespace chimera::apps {

struct Sweep {
  std::vector<std::string> schedules;
  const ShapeFlags& shape;
  const CostFlags& costs;
  const PairFlags& pairs;
  Limits limits = {};           // limits that a schedule must meet to have a row
  std::string limited_by = {};  // flags of these limits, for messages
};

struct SweepCell {
  std::string column;
  std::string text;
  bool is_number = true;
};
using SweepRow = std::vector<SweepCell>;

/// Rows are ordered by D, N, other parameters and times as listed, then by schedule. Prints on standard error which
/// schedules have no row, and why. Throws ConfigError if there is no row.
[[nodiscard]] std::vector<SweepRow> sweep_rows(const Sweep& sweep);
/// Returns CSV with the column names of the first row. Requires at least one row, and equal columns in all rows.
[[nodiscard]] std::string as_csv(const std::vector<SweepRow>& rows);
/// Omits empty cells, which are parameters that the schedule lacks.
[[nodiscard]] std::string as_json_lines(const std::vector<SweepRow>& rows);

/// `all` stands for all schedules. Throws ConfigError for an unknown name.
[[nodiscard]] std::vector<std::string> listed_schedules(const std::string& text);

/// Simulates a sweep, and formats it as `json` lines, a `text` table or, for other formats, CSV. Rows of equal D, N and
/// times are sorted by makespan. If costs decide between orders of ops (ShapeFlags::by_costs), the row has the fastest
/// that meets the limits. Throws ConfigError if there is no row.
[[nodiscard]] std::string swept(const Sweep& sweep, Format format);

/// Returns `format` if its flag `given` was given, else CSV. Throws ConfigError for formats that show a single
/// schedule.
[[nodiscard]] Format format_of_sweep(const CLI::Option& given, Format format);

}  // namespace chimera::apps
