#include "check/violation.h"

namespace chimera {

const char* to_text(ViolationKind kind) {
  // Sorted like the enumeration. Scripts of users read these names, so they must not change.
  constexpr std::array kNames = {
      "bad_placement",  "out_of_range",  "wrong_worker",      "doubled_op",       "missing_op",
      "mixed_replicas", "cycle",         "bad_pair",          "missing_version",  "wrong_version",
      "mixed_versions", "update_order",  "too_many_versions", "over_in_flight",   "over_memory",
      "sample_order",   "bad_data_flow", "mismatch",          "all_reduce_order", "deadlock"};
  static_assert(kNames.size() == static_cast<std::size_t>(ViolationKind::Deadlock) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::string describe_op(const Schedule& schedule, Place place) {
  return fmt::format("worker {}, op {} ({})", place.worker, place.position,
                     to_text(schedule.workers[place.worker][place.position], schedule.slices));
}

}  // namespace chimera
