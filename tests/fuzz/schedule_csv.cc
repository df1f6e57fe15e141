// Fuzzes a schedule in CSV.

#include "schedule/schedule_csv.h"

#include "fuzz/fuzzer.h"
#include "fuzz/schedules.h"

namespace chimera::testing {

const Fuzzer kScheduleCsv("schedule_csv", [](std::string_view bytes) {
  const auto schedule = read_or_refuse([&] { return schedule_from_csv(bytes, kSource).schedule; });
  if (schedule) exercise_schedule(*schedule);
});

}  // namespace chimera::testing
