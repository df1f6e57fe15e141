#pragma once

// The flight recorder: what each rank did last, readable after a crash. Every rank writes its latest events into a
// memory-mapped ring buffer (rank-0003.flight), which survives a kill. The launcher adds the layout of the job
// (job.json) and its verdict (verdict.json). diagnosis.h reads the folder; a job that succeeds removes it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "launch/flight/rank_progress.h"
#include "schedule/rank_layout.h"

namespace chimera {

struct FlightEvent {
  std::int64_t nanoseconds = 0;  ///< monotonic_nanoseconds()
  RankProgress progress;
};

inline constexpr std::size_t kFlightEvents = 20'000;

/// Ring buffer of a rank's latest events. Its memory-mapped file of 1.3 MB survives a kill. An event takes a clock read
/// and 64 bytes. Single writer.
class FlightRecorder {
 public:
  /// Allocates the whole file, so that note() cannot fail. Throws Error.
  explicit FlightRecorder(const std::string& path);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  void note(const RankProgress& progress);

 private:
  struct File;
  FileDescriptor lock_;  ///< For require_no_recording()
  File* file_ = nullptr;
};

/// Returns the valid events, oldest first, also of a record in use. Throws ConfigError for a file that is not a record.
[[nodiscard]] std::vector<FlightEvent> read_flight(const std::string& path);

/// Sets the recorder for note_progress() of the calling thread; may be null.
void record_flight_on(FlightRecorder* recorder);
void record_flight(const RankProgress& progress);

/// Ranks of a job, to interpret workers and groups in events.
struct FlightJob {
  std::string schedule;
  std::vector<GroupWorker> ranks = {};  ///< [rank]
  /// [parameter group]: ranks that sum its gradients; T groups for each, one after the other, if T ranks share layers
  RankGroups sums = {};
  std::int64_t tensor_parallel = 1;                   ///< T; the T ranks of a worker are neighbors
  double planned_step_seconds = 0;                    ///< Of the plan or profile that started the run; 0: none
  std::vector<std::vector<double>> planned_ops = {};  ///< [stage][op kind]: seconds by the profile; empty: none
};

struct FlightVerdict {
  std::string reason;
  std::optional<int> culprit = {};  ///< may be empty
  std::string op;                   ///< activity in the rank's report; may be empty
  std::int64_t nanoseconds = 0;     ///< on the clock of FlightEvent
  std::int64_t unix_seconds = 0;    ///< Set by write_verdict(); 0: unknown
  std::string host = {};            ///< Set by write_verdict(); empty: unknown
  /// Share of the cores that other processes used during the attempt; empty: not known
  std::optional<double> others_share = {};
};

/// Returns `folder`/rank-0003.flight.
[[nodiscard]] std::string flight_path(const std::string& folder, int rank);

/// Throws ConfigError if `folder` or `folder`-previous has other files, which would be lost.
void require_flight_folder(const std::string& folder);
/// Throws ConfigError if a rank records in the folder.
void require_no_recording(const std::string& folder);
/// Creates the folder for an attempt; renames an existing one to `folder`-previous. Throws Error, or as
/// require_flight_folder() does.
void begin_flight(const std::string& folder, const FlightJob& job);
/// Adds the verdict with time of day and host. Throws Error.
void write_verdict(const std::string& folder, const FlightVerdict& verdict);
/// Removes the folder if it has only flight records; ignores errors.
void remove_flight(const std::string& folder);

struct Flight {
  std::string folder;
  FlightJob job = {};
  std::optional<FlightVerdict> verdict = {};  ///< Empty if the job runs or its launcher was killed
  std::vector<std::optional<std::vector<FlightEvent>>> ranks = {};  ///< [rank]; empty if unreadable
};
/// Returns whether read_flight_folder() finds the records of the latest attempt: they are removed after success.
[[nodiscard]] bool has_flight(const std::string& path);
/// Reads a folder of flight records, or the newest one of a run. Throws ConfigError if it is missing or damaged.
[[nodiscard]] Flight read_flight_folder(const std::string& path);

}  // namespace chimera
