#pragma once
// Timelines in Chrome's JSON trace format (Trace Event Format, Google, 2016), for ui.perfetto.dev or chrome://tracing.
// TraceEvents writes events; to_perfetto() writes a simulated schedule with it, and telemetry measured steps.

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Groups of tracks, which viewers call processes.
enum class TraceProcess : int { Ops = 1, Idle, AllReduces, Memory, Transfers };

/// A row of slices that are disjoint or nested. Viewers sort tracks by number.
struct TraceTrack {
  std::size_t number = 0;  // Number of the track in its TraceProcess, from 0
  std::string name;
};

/// An arrow between slices.
struct TraceArrow {
  std::string_view name;
  TraceProcess process = TraceProcess::Ops;
  std::size_t from_track = 0;
  double sent = 0;  // Inside the first slice
  std::size_t to_track = 0;
  double start = 0;            // Start of the second slice
  std::string_view arguments;  // Fields of a JSON object
};

/// Collects events: X, s, f, C and M. Names and arguments are not escaped.
class TraceEvents {
 public:
  /// `unit` is the number of microseconds per unit of time.
  explicit TraceEvents(double unit) : unit_(unit) {}

  /// Names a track and its process, if not named already.
  void name(TraceProcess process, const TraceTrack& track);
  void slice(TraceProcess process, std::size_t track, std::string_view name, double start, double end,
             std::string_view arguments);
  void arrow(const TraceArrow& arrow);
  /// Sets a counter from `time` on.
  void counter(TraceProcess process, std::string_view name, double time, double value);
  /// Returns the file's text and clears the events.
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

/// Returns a timeline in Chrome's JSON trace format, with a unit of time as a millisecond:
/// - process 1: a track per worker with a slice per op (`2F5`; arguments stage, replica, micro_batch, weight_version
/// and
///   critical), arrows for messages, and optimizer steps that take time;
/// - process 2: a slice per bubble, named by its cause;
/// - process 3: each worker's all-reduces;
/// - process 4: each worker's memory as a counter.
///
/// Empty processes are omitted. Lists of the explanation may be empty, but not longer than the schedule has workers.
/// Throws ConfigError for a makespan above 10^12 units, because viewers count nanoseconds in 64 bits.
[[nodiscard]] std::string to_perfetto(const Schedule& schedule, const Timeline& timeline,
                                      const Explanation& explanation);

/// Time 0 of a timeline, and the tracks of its workers.
struct TraceFrame {
  double start = 0;
  std::vector<TraceTrack> tracks;
};

/// Adds processes 1 and 2 of to_perfetto.
void add_ops(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
             const TraceFrame& frame, TraceEvents& events);

}  // namespace chimera
