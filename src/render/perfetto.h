#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

// Chrome's JSON trace format, event by event.

// Timelines for a trace viewer: ui.perfetto.dev or chrome://tracing.

namespace chimera {

/// Groups of tracks: what viewers call processes.
enum class TraceProcess : int { Ops = 1, Idle, AllReduces, Memory, Transfers };

/// A line of slices that do not overlap, but for whole ones inside each other. Tracks stand in the order of numbers.
struct TraceTrack {
  std::size_t number = 0;  // from 0, in its process
  std::string name;
};

/// An arrow from a slice to another.
struct TraceArrow {
  std::string_view name;
  TraceProcess process = TraceProcess::Ops;
  std::size_t from_track = 0;
  double sent = 0;  // inside the first slice
  std::size_t to_track = 0;
  double start = 0;            // of the second slice
  std::string_view arguments;  // fields of a JSON object
};

/// Collects events. Names and arguments go into the text as they are.
/// Source: Trace Event Format (Google, 2016): X, s, f, C and M events.
class TraceEvents {
 public:
  /// `unit`: microseconds of a unit of time.
  explicit TraceEvents(double unit) : unit_(unit) {}

  /// Names a track, and with the first of a process that; known ones are passed over.
  void name(TraceProcess process, const TraceTrack& track);
  void slice(TraceProcess process, std::size_t track, std::string_view name, double start, double end,
             std::string_view arguments);
  void arrow(const TraceArrow& arrow);
  /// The value from `time` on of what `name` counts.
  void counter(TraceProcess process, std::string_view name, double time, double value);
  /// The text of the whole file; no event is left here.
  [[nodiscard]] std::string text();

 private:
  void add(const std::string& fields);
  void name_process(TraceProcess process);

  double unit_;
  std::size_t arrows_ = 0;
  std::set<TraceProcess> processes_;
  std::set<std::pair<TraceProcess, std::size_t>> tracks_;
  std::string events_;
};

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
