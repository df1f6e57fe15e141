// Fuzzes the records of search problems.

#include "answers/record.h"
#include "fuzz/fuzzer.h"

namespace chimera::testing {
namespace {

void exercise_record(std::string_view bytes) {
  const auto record = read_or_refuse([&] { return record_from_json(std::string(bytes), kSource); });
  if (!record) return;
  require(record->problem.layout.placement == record->schedule.placement, "the problem has the schedule's placement");
  require(record->problem.costs.stages.size() == static_cast<std::size_t>(record->schedule.stages), "costs of stages");
  require(record->problem.limits.size() == (record->max_in_flight ? 1 : 0), "only the given limit");
}

}  // namespace

const Fuzzer kRecord("record", exercise_record);

}  // namespace chimera::testing
