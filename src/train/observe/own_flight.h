#pragma once
// What the ranks of a job record of themselves (launch/flight/flight_folder.h), where the job wants that.

#include <optional>

#include "launch/flight/flight_record.h"
#include "train/setup/job.h"

namespace chimera {

/// Who the ranks of the job are, for what they record.
[[nodiscard]] FlightJob flight_job(const Job& job);

/// While it lives, what the calling thread does as this rank is recorded. Says where that is not possible.
class RecordedRank {
 public:
  RecordedRank(const Job& job, int rank);
  RecordedRank(const RecordedRank&) = delete;
  RecordedRank& operator=(const RecordedRank&) = delete;
  ~RecordedRank();

 private:
  std::optional<FlightRecorder> recorder_;
};

/// Makes the folder of the records of a job that has no launcher of ours. Says where that is not possible.
void begin_own_flight(const Job& job);

/// What becomes of it when the job has ended: it keeps why it failed, or is removed.
void end_own_flight(const Job& job, const std::optional<FlightVerdict>& verdict);

}  // namespace chimera
