#pragma once
// What each rank did last, kept in a file that outlives it however it ends.

#include <cstdint>
#include <string>
#include <vector>

#include "launch/flight/progress.h"

namespace chimera {

/// Something that a rank began to do.
struct FlightEvent {
  std::int64_t nanoseconds = 0;  ///< monotonic_nanoseconds() of the host
  RankProgress progress;         ///< of an instruction: kind, op without its weight version, peer and group
};

/// Events that a record keeps: the last ones.
inline constexpr std::size_t kFlightEvents = 20'000;

/// The record of one rank: a ring of events in a file of 640 KB that is mapped, so that what is noted is there when the
/// process is killed the instant after. Noting one reads a clock and stores 32 bytes. One writer.
class FlightRecorder {
 public:
  /// Makes the file anew, with room for all events, so that no note can fail. Throws Error where it cannot.
  FlightRecorder(const std::string& path, int rank);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  void note(const RankProgress& progress);

 private:
  struct File;
  File* file_ = nullptr;
};

/// The events of a record, the oldest first: of one that is being written, those of the moment. Throws ConfigError for
/// a file that is no record; events that no rank notes are left out.
[[nodiscard]] std::vector<FlightEvent> read_flight(const std::string& path);

/// Where the calling thread's note_progress() is recorded from now on; null: nowhere.
void record_flight_on(FlightRecorder* recorder);
/// Records it there, if anywhere.
void record_flight(const RankProgress& progress);

}  // namespace chimera
