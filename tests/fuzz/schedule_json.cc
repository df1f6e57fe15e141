// Fuzzes a schedule in JSON.

#include "schedule/schedule_json.h"

#include "fuzz/fuzzer.h"
#include "fuzz/schedules.h"

namespace chimera::testing {

const Fuzzer kScheduleJson("schedule_json", [](std::string_view bytes) {
  const auto schedule = read_or_refuse([&] { return schedule_from_json(bytes, kSource); });
  if (schedule) exercise_schedule(*schedule);
});

}  // namespace chimera::testing
