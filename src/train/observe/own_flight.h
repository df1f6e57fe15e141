#pragma once

// The flight recorder of a rank (launch/flight/flight_record.h), which records the last activities of each rank, so
// that `chimera diagnose` can find the cause of a hang or crash. Usually our launcher creates the folder of the
// records, and writes the verdict (which rank failed) at the end. For ranks that are threads, and for ranks of another
// launcher, this process does both, with begin_flight() and end_own_flight(). An error of writing does not end the
// run; it only prints a message.

#include "launch/flight/flight_record.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the description of the job that is stored with the records.
[[nodiscard]] FlightJob flight_job(const JobShape& job, const PlannedTimes& planned);

/// Scope in which the activities of the calling thread are recorded as activities of `rank`. Here and below, `folder`
/// is TrainOptions::flight_folder(); empty: nothing is recorded.
class FlightRecordingScope {
 public:
  FlightRecordingScope(const std::string& folder, int rank);
  FlightRecordingScope& operator=(FlightRecordingScope&&) = delete;
  ~FlightRecordingScope();

 private:
  std::optional<FlightRecorder> recorder_;
};

/// Writes the verdict. If there is none, because the run has succeeded, removes the folder.
void end_own_flight(const std::string& folder, const std::optional<FlightVerdict>& verdict);

}  // namespace chimera
