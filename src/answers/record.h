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
  double makespan = 0;
  double lower_bound = 0;
  std::optional<double> max_in_flight = {};  // stage units of a worker; also a limit of `problem`
};

/// Reads the text of a record. `source` names it in messages. Throws ConfigError if it is not a record, if `stages` or
/// `micro_batches` differ from the schedule's, or if the schedule is not valid. Does not recompute makespan and bound.
[[nodiscard]] Record record_from_json(const std::string& text, const std::string& source);

}  // namespace chimera
