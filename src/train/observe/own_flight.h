#pragma once

// Describes the job for its flight records (launch/flight/flight_record.h). These files have the last activities of
// each rank, so that `chimera diagnose` can find the cause of a hang or crash. Whoever creates their folder adds the
// description: our launcher (apps/train.cc) or, for ranks that are threads or were started by another launcher, the
// process of rank 0 (run.cc). After a change of the running ranks, TrainerHandover replaces it.

#include "launch/flight/flight_record.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns the description: place of each launched rank, groups of gradient sums, and predicted times (`planned`).
[[nodiscard]] FlightJob flight_job(const JobShape& job, const PlannedTimes& planned);

}  // namespace chimera
