#pragma once
// Timelines in Chrome's JSON trace format (Trace Event Format, Google, 2016), for ui.perfetto.dev or chrome://tracing.
// TraceEvents makes the text of such a file. to_perfetto() writes a simulated schedule with it, and trace_text()
// (train/observe/observation.h) measured steps. In this format, a *track* is a row of the picture, a *process* is a
// group of tracks, and a *slice* is a box with a start and an end.

#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// Groups of tracks; viewers show each as a process with this number. The last two are only in files of measured steps:
/// messages in transit, and changes of the order of ops.
enum class TraceProcess : int { Ops = 1, Idle, AllReduces, Memory, Transfers, Order };

/// A track. Its slices must be disjoint or nested. Viewers sort tracks by number.
struct TraceTrack {
  std::size_t number = 0;  // Number of the track in its TraceProcess, from 0
  std::string name;
};

/// An arrow from one slice to another, for a message.
struct TraceArrow {
  std::string_view name;
  TraceProcess process = TraceProcess::Ops;
  std::size_t from_track = 0;
  double sent = 0;  // A time within the first slice
  std::size_t to_track = 0;
  double start = 0;            // Start of the second slice
  std::string_view arguments;  // Fields of a JSON object, shown when a user selects the arrow
};

/// Collects the events of a file, of the types X, s, f, C and M of the format. All times are in one unit. Names and
/// arguments are not escaped. `arguments` are fields of a JSON object without its braces; they may be empty.
class TraceEvents {
 public:
  /// `unit` is the number of microseconds per unit of time.
  explicit TraceEvents(double unit) : unit_(unit) {}

  /// Names a track and its process, if not named already.
  void name(TraceProcess process, const TraceTrack& track);
  /// Adds a slice to a track of a process.
  void slice(TraceProcess process, std::size_t track, std::string_view name, double start, double end,
             std::string_view arguments);
  /// Adds an arrow. Both slices must exist in the file.
  void arrow(const TraceArrow& arrow);
  /// Sets the value of a counter from `time` on. Viewers draw a counter as a curve.
  void counter(TraceProcess process, std::string_view name, double time, double value);
  /// Returns the text of the file. Call it once, at the end.
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

/// Returns a timeline in Chrome's JSON trace format. A unit of time becomes a millisecond.
/// - process 1: a track per worker with a slice per op (`2F5`: forward of micro-batch 5 at stage 2; arguments stage,
///   replica, micro_batch, weight_version and critical), arrows for messages, and optimizer steps that take time;
/// - process 2: a slice per bubble (idle time), named by its cause;
/// - process 3: each worker's all-reduces;
/// - process 4: each worker's memory as a counter.
///
/// Empty processes are omitted. `explanation` is the result of explain() (simulate/explain.h); a list in it may be
/// shorter than the number of workers. Throws ConfigError for a makespan above 10^12 units, because viewers count
/// nanoseconds in 64 bits.
[[nodiscard]] std::string to_perfetto(const Schedule& schedule, const Timeline& timeline,
                                      const Explanation& explanation);

/// Where add_ops() puts a timeline in the file.
struct TraceFrame {
  double start = 0;                // Time in the file at which the timeline begins
  std::vector<TraceTrack> tracks;  // [worker]
};

/// Adds the ops and bubbles of a timeline: processes 1 and 2 of to_perfetto().
void add_ops(const Schedule& schedule, const Timeline& timeline, const Explanation& explanation,
             const TraceFrame& frame, TraceEvents& events);

}  // namespace chimera
