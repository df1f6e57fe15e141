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
  Limits limits = {};           // schedules beyond them have no row
  std::string limited_by = {};  // the flags of these limits
};

/// A cell; numbers have no quotes in JSON.
struct SweepCell {
  std::string column;
  std::string text;
  bool is_number = true;
};
using SweepRow = std::vector<SweepCell>;

[[nodiscard]] std::vector<SweepRow> sweep_rows(const Sweep& sweep);
/// Returns CSV; all rows have the columns of the first.
[[nodiscard]] std::string as_csv(const std::vector<SweepRow>& rows);
/// Returns JSON lines, without parameters that a schedule lacks.
[[nodiscard]] std::string as_json_lines(const std::vector<SweepRow>& rows);

/// Returns the names in --schedules. Throws ConfigError for an unknown name.
[[nodiscard]] std::vector<std::string> listed_schedules(const std::string& text);

/// Simulates a sweep, and formats it as `csv`, JSON lines or a table. Rows are ordered by D, N, other parameters and
/// times as listed, then by schedule. Of several orders of ops, the fastest is used. Throws ConfigError if there is no
/// row.
[[nodiscard]] std::string swept(const Sweep& sweep, Format format);

/// Returns CSV, unless --format is given. Throws ConfigError for a format of single schedules.
[[nodiscard]] Format format_of_sweep(const CLI::Option& given, Format format);

}  // namespace chimera::apps
