#pragma once
// When every op of a schedule runs: what simulate() finds, and what the pictures show.

#include <cstdint>
#include <vector>

namespace chimera {

/// Times are in the unit of the costs that produced them.
struct TimedOp {
  double start = 0;
  double end = 0;
};

struct WorkerTimeline {
  std::vector<TimedOp> ops;         // one for each op of the schedule's worker, in order
  double busy = 0;                  // sum of the ops' durations
  double idle = 0;                  // makespan - busy: the bubbles
  std::int64_t peak_in_flight = 0;  // most (replica, stage, micro-batch) forwarded here whose B or W has not ended
};

struct Timeline {
  std::vector<WorkerTimeline> workers;
  double makespan = 0;
  double bubble_ratio = 0;  // idle time of all workers / (workers * makespan)
  double lower_bound = 0;   // no order of these ops on these workers can be faster
};

}  // namespace chimera
