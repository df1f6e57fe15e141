#pragma once
// Flight recorder of the ranks (launch/flight/flight_record.h). Failures only cause messages.

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
