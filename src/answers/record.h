#pragma once

// Records: the best known schedules of fixed search problems, in benchmarks/records (its README.md lists the fields of
// a file). `chimera search --record` tries to beat one, and the page of records shows all.

#include "schedule/schedule.h"
#include "search/search.h"

namespace chimera {

/// A search problem with its best known schedule.
struct Record {
  std::string name;
  std::string placement;  // a value of --placement
  SearchProblem problem;
  Schedule schedule;
  double makespan = 0;     // of `schedule`, as the file says, in the unit of the costs of `problem`
  double lower_bound = 0;  // of the makespan of all schedules of `problem`, as the file says
  // Limit of a worker's activations, in stage units (check/check_limits.h); also in `problem`
  std::optional<double> max_in_flight = {};
};

/// Reads the text of a record. `source` names it in messages. Throws ConfigError if it is not a record, or if its
/// schedule is invalid. Does not recompute makespan and bound.
[[nodiscard]] Record record_from_json(const std::string& text, const std::string& source);

}  // namespace chimera
