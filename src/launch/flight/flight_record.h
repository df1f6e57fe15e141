#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/flight/progress.h"
#include "schedule/rank_layout.h"

// What each rank did last, kept in a file that outlives it however it ends.

// The folder of a job's flight records: one for each rank, who the ranks are, and how the job ended.

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

/// Who the ranks of a job are: what their instructions say of workers and groups is about these.
struct FlightJob {
  std::string schedule;
  std::vector<GroupWorker> ranks;  ///< [rank]
  RankGroups sums;                 ///< [parameter group]: the ranks that sum its gradients
};

/// How the job ended, as far as its launcher knows.
struct FlightVerdict {
  std::string reason;            ///< the line that people were told
  std::optional<int> culprit;    ///< the rank to blame
  std::string op;                ///< what it was doing by its own words; empty: it had none
  std::int64_t nanoseconds = 0;  ///< when the job was ended, of the clock of FlightEvent
};

/// `rank-0003.flight`.
[[nodiscard]] std::string flight_path(const std::string& folder, int rank);

/// Makes the folder anew for a job, or for its next start; what is there becomes `folder`-previous. Throws Error where
/// that cannot be.
void begin_flight(const std::string& folder, const FlightJob& job);
/// Adds how the job ended. Throws Error where that cannot be written.
void write_verdict(const std::string& folder, const FlightVerdict& verdict);
/// Removes the folder of a job that ended well, as far as that can be.
void remove_flight(const std::string& folder);

/// All that a folder has.
struct Flight {
  std::string folder;
  FlightJob job;
  std::optional<FlightVerdict> verdict;                        ///< none: the job runs, or its launcher was killed
  std::vector<std::optional<std::vector<FlightEvent>>> ranks;  ///< [rank]; none: it has left none that can be read
};
/// Reads the flight of a run's folder, of a folder of flight records in it, or of such a folder itself. Throws
/// ConfigError where there is none, or what is there makes no sense.
[[nodiscard]] Flight read_flight_folder(const std::string& path);

}  // namespace chimera
