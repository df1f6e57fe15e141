#pragma once

// The flight recorder of a rank (launch/flight/flight_record.h), which records the last activities of each rank, so
// that `chimera diagnose` can find the cause of a hang or crash. Usually our launcher creates the folder of the
// records, and writes the verdict (which rank failed) at the end. For ranks that are threads, and for ranks of another
// launcher, this process does both (run.cc). An error of writing does not end the run; it only prints a message.

#include "launch/flight/flight_record.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the description of the job that is stored with the records.
[[nodiscard]] FlightJob flight_job(const JobShape& job, const PlannedTimes& planned);

}  // namespace chimera
