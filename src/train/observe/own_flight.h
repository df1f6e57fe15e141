#pragma once

// The flight recorder of a rank (launch/flight/flight_record.h), which keeps the last events of each rank for a report
// about a hang or crash. Our launcher makes the folder and writes the verdict; for thread ranks and ranks of another
// launcher, this process does it with begin_own_flight() and end_own_flight(). Failures only cause messages.

#include <optional>

#include "launch/flight/flight_record.h"
#include "train/setup/job.h"

namespace chimera {

[[nodiscard]] FlightJob flight_job(const Job& job);

/// Records the calling thread as `rank`.
class RecordedRank {
 public:
  RecordedRank(const Job& job, int rank);
  RecordedRank(const RecordedRank&) = delete;
  RecordedRank& operator=(const RecordedRank&) = delete;
  ~RecordedRank();

 private:
  std::optional<FlightRecorder> recorder_;
};

/// Creates the flight folder of a job without our launcher.
void begin_own_flight(const Job& job);

/// Writes the verdict, or removes the folder after success.
void end_own_flight(const Job& job, const std::optional<FlightVerdict>& verdict);

}  // namespace chimera
