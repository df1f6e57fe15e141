#pragma once

#include <string>
#include <vector>

#include "check/check_limits.h"
#include "options.h"
#include "pair_flags.h"

// Lists of schedules, shapes and times: a row for each combination, simulated.

namespace chimera::apps {

/// What is swept over: --schedules, and the lists of the flags of shapes and times.
struct Sweep {
  std::vector<std::string> schedules;
  const ShapeFlags& shape;
  const CostFlags& costs;
  const PairFlags& pairs;
  Limits limits = {};           // what exceeds them has no row
  std::string limited_by = {};  // the flags that say so
};

/// A cell: its column, and its value as text. Numbers stand in JSON without quotes.
struct SweepCell {
  std::string column;
  std::string text;
  bool is_number = true;
};
using SweepRow = std::vector<SweepCell>;

/// A row for each schedule and shape that exists, as swept() orders them. Throws ConfigError where there is none.
[[nodiscard]] std::vector<SweepRow> sweep_rows(const Sweep& sweep);
/// Rows that all have the columns of the first, as CSV.
[[nodiscard]] std::string as_csv(const std::vector<SweepRow>& rows);
/// A JSON object a line, without the parameters that a schedule does not take.
[[nodiscard]] std::string as_json_lines(const std::vector<SweepRow>& rows);

/// The names that --schedules lists, separated by commas; `all` is every one. Throws ConfigError for an unknown name.
[[nodiscard]] std::vector<std::string> listed_schedules(const std::string& text);

/// The rows, by D, N, the other parameters and times in the order of their lists, then by schedule: as `csv`, JSON
/// lines or a table. Times that are lists have a column each. A parameter that is no list is as usual; where two orders
/// are to choose from, the one that ends first is taken. Shapes that a schedule does not exist for have no row. Throws
/// ConfigError where there is no row at all.
[[nodiscard]] std::string swept(const Sweep& sweep, Format format);

/// What a sweep is written as: CSV, unless --format is given. Throws ConfigError for a format of one schedule.
[[nodiscard]] Format format_of_sweep(const CLI::Option& given, Format format);

}  // namespace chimera::apps
