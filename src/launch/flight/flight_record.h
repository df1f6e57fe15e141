#pragma once

// The flight recorder: what each rank did last, readable after a crash. Every rank writes an event whenever its
// activity (RankProgress: phase, step and instruction) changes, into a memory-mapped ring buffer (rank-0003.flight),
// which survives a kill. These files are the *flight records*. In the same folder, the launcher writes which rank runs
// what (job.json) and, after a failure, which rank it blames (verdict.json). `chimera diagnose` (diagnosis.h) reads the
// folder. A job that succeeds removes it.

#include <functional>
#include <optional>

#include "core/file_descriptor.h"
#include "schedule/program.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Activity of a rank: a phase and, within the steps, a step and an instruction.
struct RankProgress {
  enum class Phase : std::uint8_t {
    StartUp,  ///< Not connected to other ranks yet
    Joining,  ///< Waiting until the other ranks connect
    Steps,    ///< At `instruction` of `step`, or just after it
    Ending,   ///< Writing final output
  };
  Phase phase = Phase::StartUp;
  std::int64_t step = 0;                 ///< From 1; only in phase Steps
  Instruction instruction = {};          ///< Only in phase Steps
  std::uint32_t allocation_retries = 0;  ///< Retries of the GPU's memory allocator before this step
};

/// Returns `start-up`, `joining the other ranks`, `1B3 in step 4` or `its end`.
[[nodiscard]] std::string to_text(const RankProgress& progress);
/// Returns whether the rank can continue only after another rank acts.
[[nodiscard]] bool waits_for_others(const RankProgress& progress);

/// A change of a rank's activity.
struct FlightEvent {
  std::int64_t nanoseconds = 0;  ///< time, from monotonic_nanoseconds()
  RankProgress progress;         ///< activity that begins
};

/// Number of events that a ring buffer keeps.
inline constexpr std::size_t kFlightEvents = 20'000;

/// Ring buffer of a rank's latest events. Its memory-mapped file of 1.3 MB survives a kill. An event takes a clock read
/// and 64 bytes. Single writer.
class FlightRecorder {
 public:
  /// Creates the file and allocates all of it, so that note() cannot fail. Throws Error if the system refuses.
  explicit FlightRecorder(const std::string& path);
  FlightRecorder& operator=(FlightRecorder&&) = delete;
  ~FlightRecorder();

  /// Records that this activity begins now.
  void note(const RankProgress& progress);
  /// Returns the valid events of a flight record, oldest first. The rank may still be writing it. Throws ConfigError
  /// for a file that is not a flight record.
  [[nodiscard]] static std::vector<FlightEvent> read(const std::string& path);

 private:
  struct File;
  FileDescriptor lock_;  ///< For require_no_recording()
  File* file_ = nullptr;
};

/// Sets the recorder of the calling thread, which borrows it; null: none.
void set_flight_recorder(FlightRecorder* recorder);
/// Adds an event to the recorder of the calling thread, if any. note_progress() (progress.h) calls it.
void record_flight(const RankProgress& progress);

/// Place of a rank that a job goes on without.
inline constexpr GroupWorker kAbsent{GroupId(-1), WorkerId(-1)};

/// Content of job.json: the ranks of a job, to interpret the workers and groups in events.
struct FlightJob {
  std::string schedule;
  /// [rank]: its data-parallel group, and its worker there; kAbsent: lost, and other ranks run its stages
  std::vector<GroupWorker> ranks = {};
  /// [parameter group] (the parameters of a stage): ranks that sum its gradients. With tensor parallelism, T groups for
  /// each, one after the other
  RankGroups sums = {};
  std::int64_t tensor_parallel = 1;                   ///< T: neighboring ranks that share each layer of a worker
  double planned_step_seconds = 0;                    ///< Predicted by the plan or profile of the run; 0: none
  std::vector<std::vector<double>> planned_ops = {};  ///< [stage][op kind]: seconds by the profile; empty: none
  std::string planned_by = {};                        ///< Name, file and date of this profile
};

/// Content of verdict.json: why the launcher ended the job.
struct FlightVerdict {
  std::string reason;
  std::optional<int> culprit = {};  ///< Rank that failed or hung for a reason of its own; empty: unknown
  std::string op;                   ///< Activity of this rank by its own report, such as "1B3"; may be empty
  std::int64_t nanoseconds = 0;     ///< Time, comparable with FlightEvent::nanoseconds
  std::int64_t unix_seconds = 0;    ///< Set by write_verdict(); 0: unknown
  std::string host = {};            ///< Set by write_verdict(); empty: unknown
  /// Fraction of the cores' time that other processes used during the attempt; empty: not known
  std::optional<double> others_share = {};
  std::string busiest_other = {};  ///< The process that used most of it (core/core_use.h); may be empty
};

/// Calls `task`, which writes flight records, unless `folder` is an empty string (no records). Errors of `task` only
/// cause messages, which name `who`: a recorder that fails must not end a run that works.
void try_flight(const std::string& folder, const std::function<void()>& task, const std::string& who = "");
/// Returns `folder`/rank-0003.flight.
[[nodiscard]] std::string flight_path(const std::string& folder, int rank);

/// Throws ConfigError if `folder` or `folder`-previous contains files other than flight records, because begin_flight()
/// would move or remove them.
void require_flight_folder(const std::string& folder);
/// Throws ConfigError if a running rank writes a flight record in the folder.
void require_no_recording(const std::string& folder);
/// Creates the folder for an attempt of a job, and writes job.json. Renames an existing folder to `folder`-previous.
/// Throws Error if the system refuses, ConfigError if require_flight_folder() does.
void begin_flight(const std::string& folder, const FlightJob& job);
/// Writes job.json in an existing folder.
void write_flight_job(const std::string& folder, const FlightJob& job);
/// Writes verdict.json, and adds the time of day and the host. Throws Error if it cannot be written.
void write_verdict(const std::string& folder, const FlightVerdict& verdict);
/// Removes the folder if it contains only flight records; ignores errors.
void remove_flight(const std::string& folder);

/// Content of a folder of flight records.
struct Flight {
  std::string folder;
  FlightJob job = {};
  std::optional<FlightVerdict> verdict = {};  ///< Empty if the job runs or its launcher was killed
  std::vector<std::optional<std::vector<FlightEvent>>> ranks = {};  ///< [rank]; empty if unreadable
};
/// Returns whether `path`, or its folder `flight`, contains flight records.
[[nodiscard]] bool has_flight(const std::string& path);
/// Reads a folder of flight records. `path` is this folder, or the folder of a run that contains it. Throws ConfigError
/// if it is missing or damaged.
[[nodiscard]] Flight read_flight_folder(const std::string& path);

}  // namespace chimera
