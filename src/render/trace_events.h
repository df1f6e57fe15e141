#pragma once
// Chrome's JSON trace format, event by event.

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace chimera
