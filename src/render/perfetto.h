#pragma once
// Timelines for a trace viewer: ui.perfetto.dev or chrome://tracing.

#include <string>
#include <vector>

#include "render/trace_events.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// A timeline in Chrome's JSON trace format, one unit of time as one millisecond:
/// - process 1: a track a worker, a slice an op (`2F5`; arguments stage, replica, micro_batch, weight_version, and
///   whether it is on the critical path), an arrow from the op that makes a message to the op that needs it, and
///   optimizer steps that take time;
/// - process 2: what each worker waits for, a slice a bubble, named by its cause;
/// - process 3: each worker's all-reduces;
/// - process 4: a counter a worker, of what it holds.
/// Processes with nothing to show are left out. The lists of the explanation may be empty; none may be longer than the
/// schedule has workers. Throws ConfigError where the makespan is beyond 10^12 units: the viewers count nanoseconds in
/// 64 bits.
/// Source: Trace Event Format (Google, 2016): X, s, f, C and M events.
[[nodiscard]] std::string to_perfetto(const Schedule& schedule, const Timeline& timeline,
                                      const Explanation& explanation);

/// Where the events of a timeline go: its time 0, and a track for each of its workers.
struct TraceFrame {
  double start = 0;
  std::vector<TraceTrack> tracks;
};

/// Adds processes 1 and 2 of to_perfetto.
void add_ops(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
             const TraceFrame& frame, TraceEvents& events);

}  // namespace chimera
